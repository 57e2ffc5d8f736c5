# Two commands do everything on a fresh Debian or Ubuntu: `make run` and `make test`.
#
# The build lives in $(TRELLIS_CACHE) (default ~/.cache/trellis), outside the checkout. The first build compiles
# RocksDB and takes about half an hour on two cores; later ones take seconds to minutes.

SHELL := /bin/sh
CARGO := sh tests/cargo.sh
NODES ?= 3
BASE_PORT ?= 11300
DATA_DIR ?= data

.PHONY: help run test check build bench soak soak-failover soak-power fmt deny fuzz clean-data

help:
	@echo 'make run     build, start a cluster of $(NODES) nodes on loopback, say where to connect (Ctrl-C stops it)'
	@echo 'make test    run the tests (installs what they need)'
	@echo 'make check   formatting, clippy, house rules'
	@echo 'make bench   Trellis beside beanstalkd, in one table'
	@echo 'make soak    kill nodes for an hour under load, count what is missing'
	@echo 'make fmt     format the source'

run:
	@sh tests/install.sh build
	@echo 'building; the first time this takes about half an hour on two cores, most of it RocksDB' >&2
	@$(CARGO) build --release --package trellis --bin trellis
	@. tests/cache.sh; exec "$$CARGO_TARGET_DIR/release/trellis" local --nodes $(NODES) --data-dir $(DATA_DIR) --base-port $(BASE_PORT)

build:
	@sh tests/install.sh build
	@$(CARGO) build --release --package trellis --package trellis-bench --bins

test:
	@sh tests/install.sh clients
	@$(CARGO) xtask test

check:
	@sh tests/install.sh build
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --all-targets -- --deny warnings
	@$(CARGO) xtask tidy

fmt:
	@$(CARGO) fmt --all

bench: build
	@sh tests/install.sh test
	@. tests/cache.sh; $(CARGO) run --quiet --release --package trellis-bench --bin trellis-bench -- side-by-side --trellis "$$CARGO_TARGET_DIR/release/trellis" $(BENCH)

deny:
	@cargo deny check

clean-data:
	@rm -rf $(DATA_DIR)
