# Vinga: all commands for users and developers. Each target installs what it needs.

CARGO_JOBS ?= 2
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -eu -o pipefail -c

VINGA := target/release/vinga
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=

.PHONY: up down cluster rolling build lib install sql test lint unit simulate check hooks bench soak tools clean help

help:
	@echo "make up     install what is missing, build, start a cluster with two SQL nodes, run a first session on it"
	@echo "make down   stop the cluster that 'make up' has started"
	@echo "make cluster  the same for two data nodes and two SQL nodes; kills a data node under SQL load and shows what happens"
	@echo "make lib    build the C library: target/release/libvinga.so and libvinga.a"
	@echo "make install PREFIX=/usr/local DESTDIR=   build, and install the program and the C library with its header"
	@echo "make sql    bring MariaDB, build the storage engine for it"
	@echo "make test   install what is missing, run all tests"
	@echo "make check  format, lint and quick tests of what has changed against main"
	@echo "make hooks  install scripts/pre-commit as this repository's hook"
	@echo "make bench  measure everything, with peers where there are some; results in target/bench"
	@echo "make soak   fresh simulator seeds, SQL under load, power cuts, fuzzers, sanitizers until stopped (MINUTES=n bounds it)"

tools:
	@scripts/install-tools.sh

build: tools
	cargo build --release --locked --jobs $(CARGO_JOBS) --bin vinga

# The C library. Programs find it by its soname.
lib: tools
	cargo build --release --locked --jobs $(CARGO_JOBS) --package libvinga
	version=$$(cargo pkgid --package libvinga | sed 's/.*[#@]//')
	ln -sf libvinga.so "target/release/libvinga.so.$${version%%.*}"

install: build lib
	PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" scripts/install.sh lib bin

# The storage engine, and the MariaDB server that it is for.
sql:
	@CARGO_JOBS=$(CARGO_JOBS) scripts/build-plugin.sh

up: build sql
	$(VINGA) up --sql-nodes 2
	$(VINGA) demo
	$(VINGA) bench flexasynch --folder vinga-cluster --rows 200000 --repetitions 1
	$(VINGA) demo --sql
	@echo
	@echo "The nodes go on running: try '$(VINGA) status', '$(VINGA) admin threads', or SQL, as '$(VINGA) up' says;"
	@echo "'$(VINGA) down' stops them."

down:
	$(VINGA) down

# Several data nodes keep nothing on disk yet, so 'make up' has one.
cluster: build sql
	VINGA=$(VINGA) scripts/cluster.sh

rolling: build sql
	VINGA=$(VINGA) scripts/rolling.sh

# The seeds are run by the program that the tests were just built with, which has the same assertions: to build one that
# is optimised takes longer than it saves.
test: lint unit
	SIMULATOR=$${CARGO_TARGET_DIR:-target}/debug/vinga scripts/simulate.sh

# Debian's own toolchain has no formatter and no linter: there they are left out.
lint: tools
	if ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; then
		echo "no rustfmt or clippy here: not linted"; exit 0
	fi
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --jobs $(CARGO_JOBS) -- -D warnings
	cd fuzz && cargo clippy --locked --jobs $(CARGO_JOBS) --target-dir ../target -- -D warnings

# Tests that start servers wait most of the time: so four at a time, also on two CPUs.
unit: tools sql
	threads=$$(nproc)
	[ "$$threads" -ge 4 ] || threads=4
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$threads} cargo test --workspace --locked --jobs $(CARGO_JOBS)

simulate: tools
	scripts/simulate.sh

check: tools
	@CARGO_JOBS=$(CARGO_JOBS) scripts/check.sh

# The hook of a worktree is that of its repository: it runs the script of the worktree that is committed in.
hooks:
	@hook=$$(git rev-parse --git-path hooks)/pre-commit
	if [ -e "$$hook" ] && ! grep -q scripts/pre-commit "$$hook"; then
		echo "$$hook is another one: not replaced" >&2; exit 1
	fi
	mkdir -p "$$(dirname "$$hook")"
	printf '%s\n' '#!/bin/sh' 'script=$$(git rev-parse --show-toplevel)/scripts/pre-commit' \
		'[ ! -x "$$script" ] || exec "$$script"' >"$$hook"
	chmod +x "$$hook"
	echo "installed $$hook"

bench: build
	scripts/bench.sh $(ARGS)

soak: tools sql
	scripts/soak.sh $(MINUTES)

clean:
	cargo clean
