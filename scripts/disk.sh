#!/usr/bin/env bash
# Measures the disk below a folder the ways in which a data node could use it: what a flush costs, alone and beside
# others, and at which rate large files are written, with the CPU time for it. docs/decisions/0021 has the conclusions.
#
#   scripts/disk.sh [FOLDER]      files of up to 1 GiB below FOLDER (default: target/disk), removed at the end
#   SECONDS_EACH=3                how long each measurement takes
set -eu -o pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/disk}
seconds=${SECONDS_EACH:-3}
command -v fio >/dev/null || { apt-get update -q && apt-get install -y -q --no-install-recommends fio; } >&2
mkdir -p "$folder"
place=$(mktemp -d "$folder/disk-XXXXXX")
trap 'rm -rf "$place"' EXIT

# Runs fio; prints writes a second, MB a second, CPU milliseconds a MB (user, system), flush latency (mean, 99 %) in
# microseconds, write latency (mean) in microseconds.
measure() {
    local what=$1
    shift
    fio --name=job --directory="$place" --output-format=json --time_based --runtime="$seconds" --group_reporting \
        --size=256M --thread "$@" 2>/dev/null | python3 -c '
import json, sys
job = json.load(sys.stdin)["jobs"][0]
written, sync = job["write"], job["sync"]["lat_ns"]
megabytes = written["io_bytes"] / 1e6
# Of all threads together, in percent of the time that each ran.
cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * written["runtime"] * int(sys.argv[2])
print("%-58s %9.0f/s %8.1f MB/s %7.3f ms/MB  flush %6.0f us, 99 %%: %6.0f  write %6.0f us" % (
    sys.argv[1], written["iops"], written["bw_bytes"] / 1e6, cpu / megabytes if megabytes else 0,
    sync["mean"] / 1e3, float(sync.get("percentile", {}).get("99.000000", 0)) / 1e3, written["lat_ns"]["mean"] / 1e3))
' "$what" "${JOBS:-1}"
}
files() { rm -f "$place"/*; }

echo "== a log: append, flush each; the file is filled beforehand unless said otherwise"
log=(--rw=write --fdatasync=1 --ioengine=psync --overwrite=1)
measure "buffered, 4 KiB" "${log[@]}" --bs=4k
measure "buffered, 4 KiB, pages of the file not in the cache" "${log[@]}" --bs=4k --invalidate=1 --pre_read=0
measure "direct, 4 KiB" "${log[@]}" --bs=4k --direct=1
measure "buffered, 32 KiB" "${log[@]}" --bs=32k
measure "direct, 32 KiB" "${log[@]}" --bs=32k --direct=1
measure "buffered, 256 KiB" "${log[@]}" --bs=256k
measure "direct, 256 KiB" "${log[@]}" --bs=256k --direct=1
measure "direct, O_DSYNC, 4 KiB" --rw=write --sync=dsync --ioengine=psync --overwrite=1 --bs=4k --direct=1
measure "direct, O_DSYNC, 32 KiB" --rw=write --sync=dsync --ioengine=psync --overwrite=1 --bs=32k --direct=1
files
measure "direct, 4 KiB, allocated but never written" "${log[@]}" --overwrite=0 --fallocate=native --bs=4k --direct=1
files
measure "direct, 4 KiB, the file grows" "${log[@]}" --overwrite=0 --fallocate=none --file_append=1 --bs=4k --direct=1
files
measure "io_uring, direct, 4 KiB" "${log[@]}" --ioengine=io_uring --bs=4k --direct=1
measure "io_uring, direct, 4 KiB, 8 before each flush" --rw=write --fdatasync=8 --iodepth=8 --ioengine=io_uring --overwrite=1 --bs=4k --direct=1
measure "direct, 4 KiB, sync_file_range (no flush of the disk)" --rw=write --ioengine=psync --overwrite=1 --bs=4k \
    --sync_file_range=write:1
files

echo "== one stream or eight: 32 KiB of log for each flush of all"
measure "one file, 32 KiB, flush" "${log[@]}" --bs=32k --direct=1
measure "eight files in turn, 4 KiB each, a flush each (one thread)" "${log[@]}" --bs=4k --direct=1 --nrfiles=8 --size=256M \
    --file_service_type=roundrobin:1
JOBS=8 measure "eight files, 4 KiB each, a flush each (a thread each)" "${log[@]}" --bs=4k --direct=1 --numjobs=8 --size=32M
files

echo "== a checkpoint: a large file, flushed at its end"
for size in 32k 128k 256k 1m 4m; do
    for direct in 0 1; do
        measure "psync, direct=$direct, $size" --rw=write --ioengine=psync --bs="$size" --direct="$direct" --size=1G --end_fsync=1 \
            --fallocate=native
        files
    done
done
JOBS=2 measure "psync, direct, 256k, two threads" --rw=write --ioengine=psync --bs=256k --direct=1 --numjobs=2 --size=512M --end_fsync=1 --fallocate=native
files
for depth in 2 4 8; do
    measure "io_uring, direct, 256k, $depth under way" --rw=write --ioengine=io_uring --bs=256k --direct=1 --size=1G --end_fsync=1 \
        --iodepth="$depth" --fallocate=native
    files
done
measure "psync, buffered, 256k, sync_file_range each 8" --rw=write --ioengine=psync --bs=256k --size=1G --end_fsync=1 \
    --sync_file_range=write:8 --fallocate=native
files
measure "psync, direct, 256k, the file grows" --rw=write --ioengine=psync --bs=256k --direct=1 --size=1G --end_fsync=1 --fallocate=none
files
measure "psync, direct, 256k, the file was written before" --rw=write --ioengine=psync --bs=256k --direct=1 --size=1G --end_fsync=1 --overwrite=1
files

echo "== a flush of the log beside a checkpoint"
for direct in 0 1; do
    fio --name=log --directory="$place" --rw=write --fdatasync=1 --ioengine=psync --overwrite=1 --bs=4k --direct=1 --size=64M --time_based \
        --runtime="$seconds" --name=checkpoint --directory="$place" --rw=write --ioengine=psync --bs=256k --direct="$direct" --size=1G \
        --time_based --runtime="$seconds" --fallocate=native --rate=200m --output-format=json --thread 2>/dev/null |
        sed -n '/^{/,$p' | python3 -c '
import json, sys
jobs = {job["jobname"]: job for job in json.load(sys.stdin)["jobs"]}
log, checkpoint = jobs["log"], jobs["checkpoint"]
print("checkpoint direct=%s at %.0f MB/s: flush of the log %.0f us, 99 %%: %.0f" % (sys.argv[1], checkpoint["write"]["bw_bytes"] / 1e6,
    log["sync"]["lat_ns"]["mean"] / 1e3, float(log["sync"]["lat_ns"]["percentile"]["99.000000"]) / 1e3))
' "$direct"
    files
done

echo "== a flush beside reads of the page cache"
fio --name=log --directory="$place" --rw=write --fdatasync=1 --ioengine=psync --overwrite=1 --bs=4k --direct=1 --size=64M --time_based \
    --runtime="$seconds" --name=reads --directory="$place" --rw=randread --ioengine=psync --bs=4k --size=256M --pre_read=1 --time_based \
    --runtime="$seconds" --output-format=json --thread 2>/dev/null |
    sed -n '/^{/,$p' | python3 -c '
import json, sys
jobs = {job["jobname"]: job for job in json.load(sys.stdin)["jobs"]}
print("beside %.0f reads/s: flush %.0f us, 99 %%: %.0f" % (jobs["reads"]["read"]["iops"], jobs["log"]["sync"]["lat_ns"]["mean"] / 1e3,
    float(jobs["log"]["sync"]["lat_ns"]["percentile"]["99.000000"]) / 1e3))
'
