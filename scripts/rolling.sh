#!/usr/bin/env bash
# Rolling restarts, and a node group that is added, while sysbench and TPC-B work on two SQL nodes. No client repeats
# anything but what a deadlock has rolled back (1213): the first other error ends it, and this fails. In the end the sums
# of TPC-B are compared. The cluster is in a folder of its own, and is stopped and removed again.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

target=$PWD/${CARGO_TARGET_DIR:-target}
[[ ${CARGO_TARGET_DIR:-} = /* ]] && target=$CARGO_TARGET_DIR
vinga=${VINGA:-$target/release/vinga}
seconds=${SECONDS_OF_LOAD:-90}
root=$target/mariadb/root/usr
tpcb=$PWD/crates/bench/sysbench/tpcb.lua
export LUA_PATH="$root/share/sysbench/?.lua" LD_LIBRARY_PATH="$root/lib/x86_64-linux-gnu"
folder=$(mktemp -d)
trap '"$vinga" down --folder "$folder/cluster" >/dev/null 2>&1; rm -rf "$folder"' EXIT
[ -x "$root/bin/sysbench" ] || { echo "no sysbench: 'make sql' brings it" >&2; exit 1; }

admin() { "$vinga" admin --folder "$folder/cluster" "$@"; }
socket() { echo "$folder/cluster/sql-$1/sql.sock"; }
run_at() {
    local node=$1
    shift
    "$root/bin/sysbench" "$@" --mysql-socket="$(socket "$node")" --mysql-user=root --mysql-db=sb \
        --mysql-ignore-errors=1213
}
read_write() { run_at "$1" "$root/share/sysbench/oltp_read_write.lua" --tables=2 --table-size=20000 --mysql_storage_engine=vinga "${@:2}"; }
bank() { run_at "$1" "$tpcb" --engine=vinga --scale=8 "${@:2}"; }

"$vinga" up --folder "$folder/cluster" --data-nodes 2 --replicas 2 --sql-nodes 2 --sql-port 23307 \
    --set DataMemory=256M || exit 1
echo "CREATE DATABASE sb" | "$target/mariadb/bin/mariadb" --no-defaults --user=root --socket="$(socket 1)" || exit 1
read_write 1 prepare >/dev/null && bank 1 prepare >/dev/null || exit 1

loads=()
for node in 1 2; do
    for load in read_write bank; do
        $load $node --threads=4 --time="$seconds" run >"$folder/$load-$node" 2>&1 &
        loads+=("$!")
    done
done
sleep 5
failed=0
{ admin rolling-restart && admin rolling-restart && admin add nodegroup && admin reorganize && admin rolling-restart; } || failed=1
for one in "${loads[@]}"; do
    wait "$one" || failed=1
done
for load in read_write bank; do
    for node in 1 2; do
        echo "$load at SQL node $node:"
        grep -E "FATAL|transactions:|ignored errors:|reconnects:|max:" "$folder/$load-$node"
    done
done
grep -q FATAL "$folder"/*-[12] && failed=1
bank 2 check | grep sums || failed=1
[ "$failed" = 0 ] && echo "nobody has noticed anything"
exit "$failed"
