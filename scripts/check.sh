#!/usr/bin/env bash
# Checks what has changed against main, in seconds to a minute once the crates are built: format, lint, unit tests.
#
#   scripts/check.sh                   'make check' calls it
#   BASE=main                          what to compare with: the commit where this branch has left BASE
#   DEPENDENTS_MAX=6                   crates that depend on a changed one are linted if they are at most so many
#   CARGO_JOBS=2
#
# A crate has changed if a file of it has, committed or not. A changed crate is linted with its tests. Inside the edge
# (blocks, storage, client/core and so on) all its tests are run; elsewhere its unit tests, and those of its integration
# tests that have changed themselves. Tests that start servers are not run. At the end it says what it has left out.
# 'make test' runs everything.
set -eu -o pipefail
cd "$(dirname "$0")/.."

base=${BASE:-main}
jobs=${CARGO_JOBS:-2}
dependents_max=${DEPENDENTS_MAX:-6}
cargo_options=(--locked --jobs "$jobs")
left_out=()
begun=$SECONDS

if ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null; then
    echo "there is no commit '$base'; set BASE" >&2
    exit 2
fi
fork=$(git merge-base HEAD "$base")
# Committed since then, staged, only in the working tree, or not known to git yet.
mapfile -t changed < <({
    git diff --name-only --no-renames "$fork"
    git ls-files --others --exclude-standard
} | sort -u)
if [ "${#changed[@]}" = 0 ]; then
    echo "nothing has changed against $base"
    exit 0
fi

# The folder of the package that a file belongs to; nothing if it belongs to none of the workspace.
package_folder() {
    local folder=$1
    while [[ $folder == crates/*/* ]]; do
        folder=${folder%/*}
        if [ -f "$folder/Cargo.toml" ]; then
            echo "$folder"
            return
        fi
    done
}
package_name() { sed -n '/^\[package\]/,/^\[/s/^name = "\(.*\)"/\1/p' "$1/Cargo.toml"; }

declare -A packages=()
test_targets=() rust=() scripts=()
is_house=0 is_workspace=0
add() { packages[$(package_name "$1")]=$1; }
for file in "${changed[@]}"; do
    folder=$(package_folder "$file")
    case $file in
        crates/sql/plugin/*)
            # A test compares its header with the Rust side.
            add crates/sql/engine
            left_out+=("compiling the C++ of the storage engine: make sql") ;;
        crates/sql/tests/storage_engine/*)
            left_out+=("MariaDB's suite: cargo test -p vinga-sql-tests --test storage_engine") ;;
        docs/configuration.md) add crates/mgm/core ;;
        docs/clients.md) add crates/client/capi ;;
        docs/formats/*) add crates/storage/format ;;
        docs/protocols/* | docs/dependencies.md | docs/simulation.md) is_house=1 ;;
        Cargo.toml | Cargo.lock) is_house=1 is_workspace=1 ;;
        fuzz/*) left_out+=("the fuzzers: make soak") ;;
    esac
    case $file in
        */Cargo.toml) is_house=1 ;;
        crates/blocks/*/src/*) [ "$(git diff "$fork" -- "$file" | grep -c '^[+-].*mark("')" = 0 ] || is_house=1 ;;
    esac
    if [ -f "$file" ]; then
        case $file in
            *.rs) rust+=("$file") ;;
            *.sh | scripts/pre-commit) scripts+=("$file") ;;
        esac
    fi
    [ -z "$folder" ] || add "$folder"
    # A file of tests is a test program, or a module of one, which is in a folder with `main.rs`.
    if [[ -n $folder && -f $file && $file =~ ^"$folder"/tests/([a-z_]+)(/([a-z_]+))?\.rs$ ]]; then
        test=${BASH_REMATCH[1]} module=${BASH_REMATCH[3]}
        case $module in
            '' | main) test_targets+=("$(package_name "$folder") $test") ;;
            *)
                if [ -f "$folder/tests/$test/main.rs" ]; then
                    test_targets+=("$(package_name "$folder") $test $module::")
                fi ;;
        esac
    fi
done
mapfile -t names < <(printf '%s\n' "${!packages[@]}" | sed '/^$/d' | sort)

at=
step() {
    at=$*
    printf '\n== %s\n' "$at"
}
trap '[ $? = 0 ] || echo "failed: $at" >&2' EXIT

step "text of ${#changed[@]} files"
git diff --check "$fork"
for script in "${scripts[@]}"; do bash -n "$script"; done

if [ "${#rust[@]}" != 0 ]; then
    if cargo fmt --version >/dev/null 2>&1; then
        step "format"
        cargo fmt --all --check
    else
        left_out+=("the format: there is no rustfmt")
    fi
fi

# Packages as options of cargo.
selected() { printf -- '--package\n%s\n' "$@"; }

lint=(cargo clippy "${cargo_options[@]}")
strict=(-- -D warnings)
if ! cargo clippy --version >/dev/null 2>&1; then
    lint=(cargo check "${cargo_options[@]}")
    strict=()
    left_out+=("the lint: there is no clippy")
fi
if [ "$is_workspace" = 1 ]; then
    step "lint of all crates, as the manifest of the workspace has changed"
    "${lint[@]}" --workspace --all-targets "${strict[@]}"
elif [ "${#names[@]}" != 0 ]; then
    step "lint of ${names[*]}"
    mapfile -t options < <(selected "${names[@]}")
    "${lint[@]}" --all-targets "${options[@]}" "${strict[@]}"
    # The crates that name one of them in their manifests.
    dependents=()
    for manifest in crates/*/Cargo.toml crates/*/*/Cargo.toml; do
        name=$(package_name "${manifest%/Cargo.toml}")
        [ -z "${packages[$name]:-}" ] || continue
        for changed_name in "${names[@]}"; do
            if grep -qE "^$changed_name(\.workspace)? *=" "$manifest"; then
                dependents+=("$name")
                break
            fi
        done
    done
    if [ "${#dependents[@]}" = 0 ]; then
        :
    elif [ "${#dependents[@]}" -le "$dependents_max" ]; then
        step "lint of what depends on them: ${dependents[*]}"
        mapfile -t options < <(selected "${dependents[@]}")
        "${lint[@]}" "${options[@]}" "${strict[@]}"
    else
        left_out+=("the ${#dependents[@]} crates that depend on the changed ones: make lint")
    fi
fi

# Inside the edge all tests of a crate are quick. What blocks do together is shown by the scenarios of vinga-node.
quick=() libraries=()
for name in "${names[@]}"; do
    case ${packages[$name]} in
        crates/core/* | crates/storage/* | crates/blocks/* | crates/mgm/* | crates/node) quick+=("$name") ;;
        crates/client/core | crates/client/workloads) quick+=("$name") ;;
        # A library without tests, and a program.
        crates/client/libvinga | crates/vinga) ;;
        *) libraries+=("$name") ;;
    esac
    case ${packages[$name]} in
        crates/core/* | crates/storage/* | crates/blocks/*)
            [ -n "${packages[vinga-node]:-}" ] || [[ " ${quick[*]} " = *" vinga-node "* ]] || quick+=(vinga-node) ;;
    esac
done
if [ "${#quick[@]}" != 0 ]; then
    step "tests of ${quick[*]}"
    mapfile -t options < <(selected "${quick[@]}")
    cargo test "${cargo_options[@]}" --quiet --tests "${options[@]}"
fi
if [ "${#libraries[@]}" != 0 ]; then
    step "unit tests of ${libraries[*]}"
    mapfile -t options < <(selected "${libraries[@]}")
    cargo test "${cargo_options[@]}" --quiet --lib "${options[@]}"
fi
if [ -n "${packages[vinga-cli]:-}" ]; then
    step "unit tests of vinga-cli"
    cargo test "${cargo_options[@]}" --quiet --package vinga-cli --bins
fi
# It compares the C header and docs/clients.md with the code.
if [ -n "${packages[vinga-capi]:-}" ]; then test_targets+=("vinga-capi header"); fi
mapfile -t test_targets < <(printf '%s\n' "${test_targets[@]}" | sed '/^$/d' | sort -u)
for target in "${test_targets[@]}"; do
    read -r name test module <<<"$target"
    [[ " ${quick[*]} " != *" $name "* ]] || continue
    case $target in
        "vinga-cli house") is_house=1 ;;
        vinga-cli\ * | vinga-sql-tests\ * | vinga-sqlnode\ * | vinga-engine\ * | libvinga\ * | *" loom")
            left_out+=("a test that takes longer: cargo test -p $name --test $test $module") ;;
        *)
            step "test $test $module of $name"
            cargo test "${cargo_options[@]}" --quiet --package "$name" --test "$test" $module ;;
    esac
done

if [ "$is_house" = 1 ]; then
    # It is a test of the program, which depends on nearly everything: to build that takes minutes if nothing is there.
    if compgen -G "${CARGO_TARGET_DIR:-target}/debug/deps/house-*" >/dev/null; then
        step "tests of the house"
        cargo test "${cargo_options[@]}" --quiet --package vinga-cli --test house
    else
        left_out+=("the tests of the house, which were never built here: cargo test -p vinga-cli --test house")
    fi
fi

printf '\nchecked %s files and %s crates in %s s\n' "${#changed[@]}" "${#names[@]}" "$((SECONDS - begun))"
if [ "${#left_out[@]}" != 0 ]; then
    printf 'left out: %s\n' "${left_out[@]}" | sort -u
fi
