#!/usr/bin/env bash
# Installs what 'make bench' compares with and the machine lacks: Redis. No service is set up or started: Debian's
# package redis-tools has the server's binary as well (as redis-check-rdb), only the package redis-server makes a
# service of it.
set -eu -o pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

has() { command -v "$1" >/dev/null; }
if has redis-benchmark && { has redis-server || has redis-check-rdb; }; then exit 0; fi

echo "installing: redis-tools"
as_root apt-get update -q
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-tools
