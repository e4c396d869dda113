#!/usr/bin/env bash
# Measures everything, with Redis beside it if that can be installed, and writes target/bench/summary.json. Arguments
# are passed on to 'vinga bench all': --quick, for example, takes about two minutes and writes into target/bench/quick.
set -eu -o pipefail
cd "$(dirname "$0")/.."

scripts/install-bench-tools.sh || echo "Redis can't be installed: there will be no ratios"
sources=$(git describe --always --dirty 2>/dev/null || true)
exec "${CARGO_TARGET_DIR:-target}/release/vinga" bench all --sources "$sources" "$@"
