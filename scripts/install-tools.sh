#!/usr/bin/env bash
# Installs what building and testing need and the machine lacks. Does nothing on a machine that has all of it.
set -eu -o pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
# The part of the storage engine that MariaDB calls is C++.
command -v g++ >/dev/null || missing+=(g++)
# Programs find the C library by it.
command -v pkg-config >/dev/null || missing+=(pkgconf)
# Tests make hosts in network namespaces with it.
command -v ip >/dev/null || missing+=(iproute2)
if ! command -v cargo >/dev/null; then
    # Debian's own toolchain, as recent as its browsers need it.
    missing+=(cargo-web rustc-web)
fi
[ "${#missing[@]}" = 0 ] && exit 0

echo "installing: ${missing[*]}"
as_root apt-get update -q
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
