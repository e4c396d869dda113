#!/usr/bin/env bash
# Fresh seeds, SQL nodes under load, power cuts and damaged files, fuzzers and sanitizers until stopped; an argument bounds
# it in minutes. Tools that are not installed (nightly toolchain, cargo-fuzz) are reported and left out.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

minutes=${1:-0}
end=$((minutes > 0 ? $(date +%s) + minutes * 60 : 0))
target=${CARGO_TARGET_DIR:-target}
over() { [ "$end" != 0 ] && [ "$(date +%s)" -ge "$end" ]; }
has_nightly() { command -v rustup >/dev/null && rustup toolchain list 2>/dev/null | grep -q nightly; }

# The sanitizers see the crates with unsafe code.
sanitize() {
    has_nightly || { echo "no nightly toolchain: no sanitizers"; return 0; }
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    # Sanitizers bring an allocator of their own, which does not keep memory as the node's does.
    local -a kept_memory=(--skip heap::tests::blocks_are_kept)
    echo "address sanitizer"
    RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/address cargo +nightly test --target "$host" \
        -p vinga-base -p vinga-fragment -p vinga-runtime --lib --test ring -- "${kept_memory[@]}" || return 1
    echo "thread sanitizer"
    local -a threads=(env TSAN_OPTIONS="suppressions=$PWD/crates/edge/runtime/tests/thread_sanitizer.suppressions"
        RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" CARGO_TARGET_DIR="$target/thread"
        cargo +nightly test --target "$host" -p vinga-runtime)
    "${threads[@]}" --lib --test ring -- "${kept_memory[@]}" || return 1
    "${threads[@]}" --test nodes end_to_end:: || return 1
    echo "loom: every interleaving of rings and sleep"
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$target/loom cargo test --release -p vinga-runtime -p vinga-local --test loom || return 1
}

fuzz() {
    has_nightly || { echo "no nightly toolchain: no fuzzers"; return 0; }
    command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz || { echo "no cargo-fuzz: no fuzzers"; return 0; }
    for one in frames filter_program update_program configuration formats; do
        over && return 0
        cargo +nightly fuzz run "$one" -- -max_total_time=60 -rss_limit_mb=4000 -print_final_stats=1 || return 1
    done
}

# The checks of the simulator notice every broken rule, and seeds take every rare branch.
check_simulator() {
    cargo build --profile sim --locked --features injected-bugs --bin vinga || return 1
    echo "breaking each rule of the protocols in turn"
    "$target/sim/vinga" sim --bugs || return 1
    echo "breaking rules of agreement"
    cargo test --locked -p vinga-agreement --features injected-bugs --test networks growth::broken || return 1
    echo "leaving out flushes of a node with real files"
    cargo test --locked -p vinga-cli --features injected-bugs --test durability power_loss:: -- --nocapture || return 1
    echo "breaking rules of real data nodes"
    cargo test --locked -p vinga-cli --features injected-bugs --test clusters histories:: -- --nocapture || return 1
    cargo test --locked -p vinga-sql-tests --features injected-bugs --test sql_nodes cluster_histories:: -- --nocapture || return 1
    echo "looking for branches that are never taken"
    "$target/sim/vinga" sim --seeds 1..6001 --jobs "${CARGO_JOBS:-2}" --expect-marks all || return 1
}

# Servers and the data node start and stop under load, for so long that leaks show.
rounds_of_sql() {
    echo "SQL nodes under load, ten rounds"
    VINGA_ROUNDS=10 cargo test --locked -p vinga-sql-tests --test sql_nodes end_to_end:: -- --nocapture || return 1
}

# Power cuts on recorded writes, damaged folders, kills under load, each with a fresh seed, which is printed.
durability() {
    local seed
    seed=$(date +%s)
    echo "power cuts, damaged folders and kills: VINGA_SEED=$seed"
    export VINGA_SEED=$seed
    VINGA_CUTS=600 cargo test --locked -p vinga-cli --test durability power_loss:: -- --nocapture || return 1
    VINGA_DAMAGES=300 cargo test --locked -p vinga-cli --test durability damaged_folders:: -- --nocapture || return 1
    VINGA_ROUNDS=100 cargo test --locked -p vinga-cli --test durability durable:: -- --nocapture || return 1
    VINGA_ROUNDS=100 cargo test --locked -p vinga-sql-tests --test sql_nodes durable_kills:: -- --nocapture || return 1
    unset VINGA_SEED
}

# Data nodes of clusters are killed, and networks between them fail, while clients work.
clusters() {
    local seed
    seed=$(date +%s)
    echo "data nodes are killed: VINGA_SEED=$seed"
    export VINGA_SEED=$seed
    VINGA_ROUNDS=500 cargo test --locked -p vinga-cli --test clusters cluster_kills:: -- --nocapture || return 1
    echo "networks fail: VINGA_SEED=$seed"
    VINGA_ROUNDS=10 cargo test --locked -p vinga-cli --test clusters networks:: -- --nocapture || return 1
    VINGA_ROUNDS=100 cargo test --locked -p vinga-cli --test clusters histories:: -- --nocapture || return 1
    echo "data nodes are killed or stand still under SQL"
    VINGA_ROUNDS=20 cargo test --locked -p vinga-sql-tests --test sql_nodes cluster_histories:: -- --nocapture || return 1
    unset VINGA_SEED
}

check_simulator || exit 1
sanitize || exit 1
while ! over; do
    FIRST=fresh SEEDS=500 scripts/simulate.sh || exit 1
    over && break
    rounds_of_sql || exit 1
    over && break
    clusters || exit 1
    over && break
    durability || exit 1
    over && break
    fuzz || exit 1
done
