# Two commands do everything on a fresh Debian or Ubuntu: `make run` and `make test`.
#
# The build lives in $(BUILD_CACHE) (default ~/.cache/trellis), outside the checkout. The first build compiles
# RocksDB and takes about half an hour on two cores; later ones take seconds to minutes.

SHELL := /bin/sh
CARGO := sh tests/cargo.sh
NODES ?= 3
BASE_PORT ?= 11300
DATA_DIR ?= trellis-data
PREFIX ?= /usr/local
ROUNDS ?= 20
SEED ?= 1
SECONDS ?= 60

.PHONY: help run test check build install bench bench-peers bench-scale bench-micro soak chaos fault-report fmt deny model fuzz clean-data disks seeded-bugs sim

help:
	@echo 'make run     build, start a cluster of $(NODES) nodes on loopback, say where to connect (Ctrl-C stops it); knobs: NODES BASE_PORT DATA_DIR'
	@echo 'make build   build trellis and trellis-bench, start nothing'
	@echo 'make install build trellis and copy it to $(PREFIX)/bin; knobs: PREFIX DESTDIR'
	@echo 'make test    run the tests (installs what they need)'
	@echo 'make check   formatting, clippy, house rules'
	@echo 'make fmt     format the source'
	@echo 'make deny    licences and advisories of dependencies (needs cargo-deny)'
	@echo 'make clean-data  delete what "make run" keeps in $(DATA_DIR)'
	@echo
	@echo 'make model   the protocol in every order that a small world allows (SEED=$(SEED) SECONDS=$(SECONDS) for the walks)'
	@echo 'make sim     whole nodes in simulated time, with faults (SEEDS=first..last, 1..50 by default; SEED=n to replay one; SECONDS=40 of faults in each)'
	@echo 'make soak    kill and freeze nodes under load, $(ROUNDS) times each, as root; count what is missing (ROUNDS=n)'
	@echo 'make chaos   real clusters broken in every way this machine allows, about 20 minutes, as root (SEED=n; MINUTES=n for pairs'
	@echo '             of faults drawn by the seed; STORY=name for one)'
	@echo 'make disks   nodes on disks that lose, fail, lie and hang, a quarter of an hour, as root'
	@echo '             (DISKS="power-cut slow-follower" for some stories; SEED=$(SEED) CUTS=10)'
	@echo 'make seeded-bugs  plant one classic bug after the other and see that a suite finds it, half an hour (BUGS=name,name'
	@echo '             for some; INSTRUMENTS=name,name to look with others than expected)'
	@echo 'make fault-report  write docs/fault-report.md from what these left behind'
	@echo 'make fuzz    feed the decoder what nobody would say (needs cargo-fuzz and a nightly compiler)'
	@echo
	@echo 'make bench   Trellis beside beanstalkd, in one table'
	@echo 'make bench-peers  Trellis beside every durable queue that Debian and Go have, about a quarter of an hour; knobs:'
	@echo '             PEERS="redis etcd" LOADS="put:256 cycle:64" CONNECTIONS="1 16" DEPTH=1 BYTES=8192 SECONDS=3 ROUNDS=3'
	@echo '             (FULL=1: every load with 256 bytes and 8 KiB, some hours)'
	@echo 'make bench-scale  much of everything: tubes, connections, jobs, bytes (ONLY="ready storms" JOBS=10000000 GONE=5000000 MINUTES=10)'
	@echo 'make bench-micro  time and allocations of apply, encoding, decoding and the log, for each command (BENCH="apply put")'
	@echo '             BENCH="..." hands further arguments to the others'

run:
	@sh tests/install.sh build
	@sh tests/first.sh
	@$(CARGO) build --release --package trellis --bin trellis
	@. tests/cache.sh; echo "the binary is $$CARGO_TARGET_DIR/release/trellis" >&2; exec "$$CARGO_TARGET_DIR/release/trellis" local --nodes $(NODES) --data-dir $(DATA_DIR) --base-port $(BASE_PORT)

build:
	@sh tests/install.sh build
	@sh tests/first.sh
	@$(CARGO) build --release --package trellis --package trellis-bench --bins
	@. tests/cache.sh; echo "the binaries are trellis and trellis-bench in $$CARGO_TARGET_DIR/release" >&2

install:
	@d="$(DESTDIR)$(PREFIX)/bin"; until [ -e "$$d" ]; do d=$$(dirname "$$d"); done; [ -w "$$d" ] || \
		{ echo "install: you may not write to $$d; PREFIX=\$$HOME/.local is yours" >&2; exit 1; }
	@sh tests/install.sh build
	@sh tests/first.sh
	@$(CARGO) build --release --package trellis --bin trellis
	@. tests/cache.sh; install -D -m 755 "$$CARGO_TARGET_DIR/release/trellis" "$(DESTDIR)$(PREFIX)/bin/trellis"
	@echo "installed: $(DESTDIR)$(PREFIX)/bin/trellis" >&2

test:
	@sh tests/install.sh clients
	@$(CARGO) xtask test

check:
	@sh tests/install.sh build
	@$(CARGO) fmt --all --check
	@$(CARGO) xtask tidy
	@$(CARGO) clippy --workspace --all-targets -- --deny warnings

fmt:
	@$(CARGO) fmt --all

bench: build
	@sh tests/install.sh test
	@. tests/cache.sh; $(CARGO) run --quiet --release --package trellis-bench --bin trellis-bench -- side-by-side --trellis "$$CARGO_TARGET_DIR/release/trellis" $(BENCH)

# Only what was asked for: SECONDS and ROUNDS have other defaults elsewhere.
asked = $(if $(filter command environment,$(firstword $(origin $(1)))),$($(1)))
PEERS_KNOBS = $(if $(PEERS),--peers "$(PEERS)") $(if $(LOADS),--loads "$(LOADS)") $(if $(CONNECTIONS),--connections "$(CONNECTIONS)") \
	$(if $(DEPTH),--depth $(DEPTH)) $(if $(BYTES),--body-bytes $(BYTES)) $(if $(FULL),--full) \
	$(if $(call asked,SECONDS),--seconds $(SECONDS)) $(if $(call asked,ROUNDS),--rounds $(ROUNDS))

bench-peers: build
	@sh tests/install.sh peers
	@. tests/cache.sh; PATH="$$BUILD_CACHE/peers:$$PATH" "$$CARGO_TARGET_DIR/release/trellis-bench" peers \
		--trellis "$$CARGO_TARGET_DIR/release/trellis" $(PEERS_KNOBS) $(BENCH)

bench-scale: build
	@. tests/cache.sh; "$$CARGO_TARGET_DIR/release/trellis-bench" scale --trellis "$$CARGO_TARGET_DIR/release/trellis" \
		$(if $(ONLY),--only "$(ONLY)") $(if $(JOBS),--jobs $(JOBS)) $(if $(GONE),--gone $(GONE)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(BENCH)

bench-micro:
	@sh tests/install.sh build
	@$(CARGO) bench --quiet --package trellis-bench --bench micro -- $(if $(BENCH),"$(BENCH)")

# Release builds, so that the gaps are those of a real cluster.
soak:
	@sh tests/install.sh test
	@$(CARGO) build --release --package trellis --bin trellis
	@. tests/cache.sh; TRELLIS_BIN="$$CARGO_TARGET_DIR/release/trellis" TRELLIS_ROUNDS=$(ROUNDS) \
		$(CARGO) test --release --package trellis-tests --test failover --test silence --test long -- --nocapture --test-threads 1
	@$(CARGO) test --release --package trellis-node --test idle_hour

# Release builds: at least 500 acknowledged operations a second are demanded.
chaos:
	@sh tests/install.sh test
	@$(CARGO) build --release --package trellis --bin trellis --package trellis-chaos --package trellis-chaos-disk
	@. tests/cache.sh; "$$CARGO_TARGET_DIR/release/trellis-chaos" run --binary "$$CARGO_TARGET_DIR/release/trellis" \
		--results "$$BUILD_CACHE/results/chaos.jsonl" --keep "$$BUILD_CACHE/kept" --seed $(SEED) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(STORY),--story '$(STORY)') $(CHAOS)

# Results of all instruments lie in one folder.
fault-report:
	@$(CARGO) build --release --package trellis-chaos --bin trellis-chaos
	@. tests/cache.sh; "$$CARGO_TARGET_DIR/release/trellis-chaos" report --results "$$BUILD_CACHE/results" --out docs/fault-report.md

# Minutes: every state of the small worlds, a walk through random ones, every rule dropped in turn.
model:
	@sh tests/install.sh build
	@$(CARGO) run --quiet --release --package trellis-sim -- model exhaustive
	@$(CARGO) run --quiet --release --package trellis-sim -- model walk --seed $(SEED) --seconds $(SECONDS)
	@$(CARGO) run --quiet --release --package trellis-sim -- model mutations --seed $(SEED)

# Whole nodes in simulated time: SEEDS=first..last, or SEED=n alone, whose history is kept. SECONDS of faults in each.
sim:
	@sh tests/install.sh build
	@$(CARGO) build --quiet --release --package trellis-sim
	@. tests/cache.sh; mkdir -p "$$BUILD_CACHE/results"; "$$CARGO_TARGET_DIR/release/trellis-sim" whole \
		$(if $(filter command,$(origin SEED)),--seed $(SEED),--seeds $(or $(SEEDS),1..50) --results "$$BUILD_CACHE/results/sim.jsonl") \
		$(if $(filter command,$(origin SECONDS)),--seconds $(SECONDS)) --histories "$$BUILD_CACHE/kept/sim" $(SIM)

# Half an hour; BUGS=name,name for some, INSTRUMENTS=name,name to look with others than expected.
seeded-bugs:
	@sh tests/install.sh test
	@. tests/cache.sh; SEEDED_RESULTS="$$BUILD_CACHE/results/seeded-bugs.jsonl" \
		$(CARGO) xtask seeded-bugs $(if $(BUGS),--only $(BUGS)) $(if $(INSTRUMENTS),--with $(INSTRUMENTS))

# A quarter of an hour; slow-follower alone is two minutes and wants an idle machine.
disks:
	@sh tests/install.sh build
	@$(CARGO) build --release --package trellis --package trellis-chaos-disk --bins
	@. tests/cache.sh; "$$CARGO_TARGET_DIR/release/trellis-chaos-disk" story $(DISKS) --seed $(SEED) \
		--rounds $(or $(CUTS),10) --out "$$BUILD_CACHE/results/disks.jsonl"

fuzz:
	@cd crates/wire && cargo +nightly fuzz run decoder -- -max_total_time=60

# Advisories last: they are fetched from their own repository, which may not be in reach.
deny:
	@cargo deny check licenses bans sources
	@cargo deny check advisories

clean-data:
	@rm -rf $(DATA_DIR)
