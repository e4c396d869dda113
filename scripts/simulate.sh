#!/usr/bin/env bash
# Runs the simulator over seeds, the same 500 each time, and some of them twice. SEEDS=n changes the number, FIRST=n the
# first; FIRST=fresh takes seeds that were most likely never run before. SIMULATOR=PATH is a program with
# assertions to do it with; without it one is built that is optimised.
set -eu -o pipefail
cd "$(dirname "$0")/.."

seeds=${SEEDS:-500}
first=${FIRST:-1}
[ "$first" != fresh ] || first=$((RANDOM * 32768 + RANDOM))
jobs=${CARGO_JOBS:-2}

vinga=${SIMULATOR:-${CARGO_TARGET_DIR:-target}/sim/vinga}
[ -n "${SIMULATOR:-}" ] || cargo build --profile sim --locked --jobs "$jobs" --bin vinga

echo "simulating seeds $first to $((first + seeds - 1))"
# The usual seeds are known to meet all rare branches that 500 seeds meet.
expect=()
[ "$first" != 1 ] || [ "$seeds" -lt 500 ] || expect=(--expect-marks)
"$vinga" sim --seeds "$first..$((first + seeds))" --jobs "$jobs" "${expect[@]}"
"$vinga" sim --seeds "$first..$((first + 20))" --twice
echo "the same with data nodes that come back"
"$vinga" sim --seeds "$first..$((first + seeds / 5))" --returning-nodes --jobs "$jobs"
