#!/usr/bin/env bash
# Builds two commits and measures them in turn, so that their figures can be compared on one machine on one day.
#
#   scripts/ab.sh BEFORE [AFTER]       AFTER is the present commit if it is not given
#   ROUNDS=5                           measurements of each build
#   PARTS="batches scan ranges sql"    parts of 'vinga bench all'
#   MORE="--quick"                     further options of 'vinga bench all'
#   LEAST=0.97                         the least ratio that is accepted; exit code 1 if one is below
#
# Both are built in worktrees below target/ab, which are kept for the next time. Within a round the builds take turns at being
# first.
set -eu -o pipefail
cd "$(dirname "$0")/.."

[ $# = 1 ] || [ $# = 2 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
place=$PWD/target/ab
parts=${PARTS:-batches scan ranges sql}
rounds=${ROUNDS:-5}

# Builds a commit; says where its program is.
build() {
    local commit=$1 tree
    tree=$place/$commit
    [ -d "$tree" ] || git worktree add --quiet --detach "$tree" "$commit" >&2
    mkdir -p "$tree/target"
    # The server that SQL is measured with is the same, and large.
    [ -e "$tree/target/mariadb" ] || [ ! -d target/mariadb ] || ln -s "$PWD/target/mariadb" "$tree/target/mariadb"
    (
        cd "$tree"
        unset CARGO_TARGET_DIR
        case " $parts " in *" sql "*) scripts/build-plugin.sh ;; esac
        cargo build --release --locked --jobs "${CARGO_JOBS:-2}" --bin vinga
    ) >&2
    echo "$tree/target/release/vinga"
}

commit_of() { git rev-parse --short=12 --verify "$1^{commit}"; }
names=("$(commit_of "$1")" "$(commit_of "${2:-HEAD}")")
case " $parts " in *" sql "*) scripts/install-bench-tools.sh && scripts/install-mariadb.sh ;; esac
programs=("$(build "${names[0]}")" "$(build "${names[1]}")")
results=$place/${names[0]}-${names[1]}
rm -rf "$results"
mkdir -p "$results"

sides=(before after)
measure() {
    echo "round $2, ${sides[$1]} (${names[$1]})"
    # Each program finds the SQL node's files beside itself.
    (cd "$(dirname "${programs[$1]}")/../.." &&
        "${programs[$1]}" bench all --loops 1 --parts $parts --out "$results/${sides[$1]}-$2" --sources "${names[$1]}" --quiet ${MORE:-}) \
        >"$results/${sides[$1]}-$2.log" 2>&1
}
for round in $(seq "$rounds"); do
    first=$((round % 2 == 0))
    measure "$first" "$round"
    measure $((1 - first)) "$round"
done
"${programs[1]}" bench ab "$results" --least "${LEAST:-0.97}"
