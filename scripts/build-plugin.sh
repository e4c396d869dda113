#!/usr/bin/env bash
# Builds the storage engine for MariaDB, after fetching the server that it is for. Unchanged parts are not built again.
#
#   target/sql/ha_vinga.so       the plugin
#   target/sql/ha_vinga.server   the server's version that it works with, as 'mariadbd --version' prints it
set -eu -o pipefail
cd "$(dirname "$0")/.."

scripts/install-tools.sh
scripts/install-mariadb.sh

target=${CARGO_TARGET_DIR:-target}
mariadb=$target/mariadb
place=$target/sql
sources=crates/sql/plugin
library=$target/release/libvinga_engine.a
plugin=$place/ha_vinga.so
libraries=$(printf '%s:' "$mariadb"/root/lib/*-linux-gnu* "$mariadb"/root/usr/lib/*-linux-gnu*)

flags=(-std=c++17 -O2 -g1 -fPIC -fno-strict-aliasing -Wall -Wno-unused-parameter
    -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -DDBUG_OFF -D_FILE_OFFSET_BITS=64)
for folder in source/include source/sql source/wsrep-lib/include source/wsrep-lib/wsrep-API/v26 root/usr/include/mariadb/server; do
    # As system headers: their warnings are not ours.
    flags+=(-isystem "$mariadb/$folder")
done

in_mariadb() { LD_LIBRARY_PATH=$libraries "$@"; }

# The inputs of a build step, as one line; the step is repeated when the line differs from the last one.
fingerprint() { cat "$mariadb/version" "$0" "$@" | sha256sum; }
is_new() { [ "$(cat "$1.from" 2>/dev/null)" != "$2" ]; }

compile() {
    local source=$1 object from
    object=$place/objects/$(basename "$source" .cc).o
    from=$(fingerprint "$source" "${headers[@]}")
    objects+=("$object")
    is_new "$object" "$from" || return 0
    echo "compiling $source"
    g++ "${flags[@]}" -c "$source" -o "$object"
    echo "$from" >"$object.from"
}

# The server would notice a missing symbol only when it loads the plugin, with a poor error message.
check_symbols() {
    local missing
    missing=$(comm -23 \
        <(nm -D --undefined-only --format=posix "$1" | awk '$2 == "U" { sub(/@.*/, "", $1); print $1 }' | sort -u) \
        <({
            echo "$mariadb/root/usr/sbin/mariadbd"
            in_mariadb ldd "$mariadb/root/usr/sbin/mariadbd" "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*[^:]$/ { print $1 }'
        } | sort -u | xargs nm -D --defined-only --format=posix | awk '{ sub(/@.*/, "", $1); print $1 }' | sort -u))
    [ -z "$missing" ] && return 0
    echo "the server has no such symbols, but the plugin needs them:" >&2
    c++filt <<<"$missing" >&2
    return 1
}

link() {
    local from
    from=$(fingerprint "${objects[@]}" "$library")
    is_new "$plugin" "$from" || return 0
    echo "linking $plugin"
    rm -f "$plugin.from"
    # The engine's threads end by themselves: their code must stay mapped when the server unloads the plugin.
    echo '{ global: _maria_*; _mysql_*; local: *; };' >"$place/exports"
    g++ -shared -o "$plugin.new" "${objects[@]}" "$library" -Wl,--version-script="$place/exports" -Wl,-z,now,-z,nodelete \
        -lgcc_s -lutil -lrt -lpthread -lm -ldl
    check_symbols "$plugin.new"
    in_mariadb "$mariadb/root/usr/sbin/mariadbd" --no-defaults --version | sed 's/.* Ver \([^ ]*\) .*/\1/' >"$place/ha_vinga.server"
    # A server that has the old one loaded keeps it: writing into its file would crash it.
    mv -f "$plugin.new" "$plugin"
    echo "$from" >"$plugin.from"
    echo "the plugin for MariaDB $(cat "$place/ha_vinga.server") is $plugin"
}

cargo build --release --locked --jobs "${CARGO_JOBS:-2}" --package vinga-engine --lib
mkdir -p "$place/objects"
# Headers of the engine's interface, too.
mapfile -t headers < <(find crates/sql -name '*.h' | sort)
objects=()
for source in "$sources"/*.cc; do compile "$source"; done
link
