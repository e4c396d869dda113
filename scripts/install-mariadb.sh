#!/usr/bin/env bash
# Fetches MariaDB's server, its clients, its headers and the sources of the same version into the build folder, where
# the storage engine is built for it and run with it. A MariaDB of the machine is not touched, and no root is needed:
# apt works with separate lists and a separate cache, and packages are unpacked, not installed.
#
#   target/mariadb/root      the packages, unpacked: usr/sbin/mariadbd, usr/bin/mariadb, libraries, headers
#   target/mariadb/source    of the server's source: include/, sql/, wsrep-lib/
#   target/mariadb/bin       its programs for the command line, ready to be run
#   target/mariadb/version   which version it is; written last, so if it exists all is complete
#
# A plugin works only with exactly the version that it was built for. The newest version of which the archive has
# packages and source is taken; MARIADB_VERSION chooses another.
set -eu -o pipefail
cd "$(dirname "$0")/.."

place=$(mkdir -p "${CARGO_TARGET_DIR:-target}/mariadb" && cd "${CARGO_TARGET_DIR:-target}/mariadb" && pwd)

# Programs find their libraries, and sysbench its scripts, through one script with many names.
make_programs() {
    local program
    rm -rf "${place:?}/bin"
    mkdir "$place/bin"
    cat >"$place/bin/run" <<'RUN'
#!/bin/sh
# Runs a program of ../root by the name that this script is called by.
root=$(cd "$(dirname "$0")/../root" && pwd)
for folder in "$root"/lib/*-linux-gnu* "$root"/usr/lib/*-linux-gnu*; do
    LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
export LD_LIBRARY_PATH
export LUA_PATH="$root/usr/share/sysbench/?.lua;;"
exec "$root/usr/bin/$(basename "$0")" "$@"
RUN
    chmod +x "$place/bin/run"
    for program in mariadb mariadb-admin mariadb-check mariadb-dump mariadb-import mariadb-show mariadb-slap \
        mariadb-test sysbench; do
        ln -s run "$place/bin/$program"
    done
}

# Version of what this script fetches and of its layout; a change of that must increase it, and all is fetched anew.
layout=3

[ -s "$place/version" ] && [ "$(cat "$place/layout" 2>/dev/null)" = "$layout" ] &&
    [ "${MARIADB_VERSION:-$(cat "$place/version")}" = "$(cat "$place/version")" ] && exit 0
rm -f "$place/version"

# The server and its clients, its headers and tests; then libraries that they need and a small system may lack.
server_packages="mariadb-server mariadb-server-core mariadb-client mariadb-client-core mariadb-common libmariadb3
    libmariadbd-dev mariadb-test mariadb-test-data"
library_packages="libaio1 liburing2 libnuma1 libpcre2-8-0 libpcre2-posix3 libedit2 libncurses6 libbsd0 libmd0 libsnappy1v5
    libssl3"
sysbench_packages="sysbench libluajit-5.1-2 libluajit-5.1-common libpq5 libldap-2.5-0 libsasl2-2"
# Drivers of other languages, for tests with real clients.
driver_packages="python3-pymysql libmariadb-java"

begin_apt() {
    mkdir -p "$place/apt/sources" "$place/apt/lists/partial" "$place/apt/cache/archives/partial"
    rm -f "$place/apt/sources"/*
    # The machine's own sources, each with its source packages too.
    local file
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] && sed 's/^Types:.*/Types: deb deb-src/' "$file" >"$place/apt/sources/$(basename "$file")"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] && sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' "$file" >"$place/apt/sources/$(basename "$file")"
    done
    cat >"$place/apt/apt.conf" <<CONF
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$place/apt/sources";
Dir::State::Lists "$place/apt/lists";
Dir::Cache "$place/apt/cache";
Acquire::Languages "none";
APT::Sandbox::User "";
CONF
    export APT_CONFIG=$place/apt/apt.conf
    apt-get update -q -o Dpkg::Use-Pty=0
}

# The parts of the source with which the plugin is compiled.
fetch_source() {
    local version=$1
    rm -rf "$place/source" "$place/download" && mkdir -p "$place/source" "$place/download"
    (cd "$place/download" && apt-get source --download-only -q "mariadb=$version") || return 1
    echo "unpacking the server's headers"
    tar -xf "$place"/download/mariadb_*.orig.tar.[gx]z --no-same-owner -C "$place/source" --strip-components=1 \
        --wildcards '*/include/*' '*/sql/*.h' '*/wsrep-lib/*'
}

fetch_packages() {
    local version=$1 package
    local -a wanted=()
    for package in $server_packages; do wanted+=("$package=$version"); done
    for package in $library_packages $sysbench_packages $driver_packages; do wanted+=("$package"); done
    (cd "$place/download" && apt-get download -q "${wanted[@]}") || return 1
    rm -rf "$place/root" && mkdir -p "$place/root"
    for package in "$place"/download/*.deb; do dpkg -x "$package" "$place/root"; done
    # The embedded server is large, and nothing links it.
    rm -f "$place"/root/usr/lib/*/lib{mysqld,mariadbd}.*
    # The script that makes data directories would let it run as root for every user; PAM is not used here.
    rm -rf "$place"/root/usr/lib/mysql/plugin/auth_pam_tool_dir
}

# The one header that the server's build makes and no package has: empty trace probes.
make_header() {
    local header=$place/source/include/probes_mysql_nodtrace.h
    cp "$header.in" "$header"
}

begin_apt
versions=${MARIADB_VERSION:-$(apt-cache showsrc mariadb | sed -n 's/^Version: //p' | sort -rV | uniq)}
packages=$(apt-cache madison mariadb-server)
for version in $versions; do
    # Whether a version has everything is only known by trying.
    if [[ "$packages" == *"$version"* ]] && fetch_source "$version" && fetch_packages "$version"; then
        make_header
        make_programs
        rm -rf "$place/download" "$place/apt"
        echo "$layout" >"$place/layout"
        echo "$version" >"$place/version"
        echo "MariaDB $version is in $place"
        exit 0
    fi
    echo "MariaDB $version: not all of its packages and source can be had"
done
echo "no version of MariaDB could be brought into $place" >&2
exit 1
