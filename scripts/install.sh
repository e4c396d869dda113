#!/usr/bin/env bash
# Installs what was built: 'lib' (the C library with header and pkg-config file), 'bin' (the program), or both.
#   PREFIX   where it will be used (/usr/local)
#   LIBDIR   the folder of libraries in there (PREFIX/lib)
#   DESTDIR  what is put before all paths, for packages
#   BUILT    the folder of the build (target/release)
set -eu -o pipefail

sources=$(cd "$(dirname "$0")/.." && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
destdir=${DESTDIR:-}
built=${BUILT:-$sources/target/release}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$sources/Cargo.toml")
soname=libvinga.so.${version%%.*}

need() { [ -e "$1" ] || { echo "$1 is not there: $2" >&2; exit 1; }; }

install_lib() {
    need "$built/libvinga.so" "build it with 'make lib'"
    need "$built/libvinga.a" "build it with 'make lib'"
    install -d "$destdir$libdir/pkgconfig" "$destdir$prefix/include" "$destdir$prefix/share/doc/vinga"
    install -m 755 "$built/libvinga.so" "$destdir$libdir/libvinga.so.$version"
    ln -sf "libvinga.so.$version" "$destdir$libdir/$soname"
    ln -sf "$soname" "$destdir$libdir/libvinga.so"
    install -m 644 "$built/libvinga.a" "$destdir$libdir/libvinga.a"
    install -m 644 "$sources/crates/client/capi/include/vinga.h" "$destdir$prefix/include/vinga.h"
    install -m 644 "$sources/LICENSE-MIT" "$sources/LICENSE-APACHE" "$destdir$prefix/share/doc/vinga/"
    cat > "$destdir$libdir/pkgconfig/vinga.pc" <<PC
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: vinga
Description: C client of Vinga, a distributed in-memory transactional database
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lvinga
Libs.private: -lpthread -ldl -lm
PC
}

install_bin() {
    need "$built/vinga" "build it with 'make build'"
    install -d "$destdir$prefix/bin" "$destdir$prefix/share/doc/vinga"
    install -m 755 "$built/vinga" "$destdir$prefix/bin/vinga"
    install -m 644 "$sources/LICENSE" "$destdir$prefix/share/doc/vinga/"
    # MariaDB is not ours to install, and the storage engine works with that server only.
    local target
    target=$(cd "$built/.." && pwd)
    echo "For SQL nodes the installed program must know where 'make sql' puts MariaDB and the storage engine:"
    echo "  export VINGA_MARIADB='$target/mariadb' VINGA_PLUGIN='$target/sql/ha_vinga.so'"
}

[ "$#" -gt 0 ] || set -- lib bin
for what in "$@"; do
    case $what in
        lib) install_lib ;;
        bin) install_bin ;;
        *) echo "install.sh: '$what' is neither 'lib' nor 'bin'" >&2; exit 1 ;;
    esac
done
