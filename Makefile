# The tasks of Hartline's development, as one-word commands. Everything is built in
# release mode into one target directory, so no step compiles twice.

SETUP   := deploy/setup
RELEASE := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release
BUSYBOX := .debian/riscv64/usr/bin/busybox

FUZZ_SECONDS ?= 60
STRESS_SECONDS ?= 600
LONG_SECONDS ?= 600
BUSY_SECONDS ?= 3600
SOAK_SECONDS ?= 1800
SEEDS ?= 100
MODELS := cargo test --release --locked --manifest-path tests/models/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/models

.PHONY: help setup test-setup update-lock build library build-bench run test test-long test-packages test-suites test-emulated models stress stress-busy soak chaos fuzz bench-programs bench bench-io bench-snapshot bench-jit bench-service deb test-deb fmt lint doc clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

setup: ## Install what building and running need (Debian; uses sudo if not root)
	@$(SETUP)/setup.sh

test-setup: ## Install what the tests need too
	@$(SETUP)/setup.sh test

update-lock: ## Write the lock files of Debian's packages anew from its index
	@$(SETUP)/update-lock.sh

build: setup ## Build hartline and its daemon, hartlined
	cargo build --release --locked -p hartline -p hartline-daemon

library: setup ## Build libhartline.so for hosts in C and Python, in target/libhartline
	@vmm/embed-c/build.sh target/libhartline

build-bench: build ## Build hartline-bench, which `hartline bench` starts
	cargo build --release --locked -p hartline-bench

run: build ## Start the daemon, run Debian's riscv64 busybox through its API (KEEP=1: leave it up)
	@$(SETUP)/fetch-debian.sh riscv64 .debian/riscv64 busybox-static
	@deploy/run.sh $(RELEASE) $(BUSYBOX) uname -a

test: test-setup ## Run every test (HARTLINE_REQUIRE_KVM=1: fail, not skip, without /dev/kvm)
	@# This builds the commands too. With HARTLINE set, the tests do not build them again with other features.
	HARTLINE=$(abspath $(RELEASE))/hartline cargo test --release --locked --workspace --no-fail-fast $(TEST_OPTIONS)
	@$(MAKE) --no-print-directory models

test-long: build test-setup ## Run random system calls and eight VMs at once for LONG_SECONDS (600) each, and 100 seeds of chaos
	HARTLINE_FUZZ_SECONDS=$(LONG_SECONDS) HARTLINE_BUSY_SECONDS=$(LONG_SECONDS) HARTLINE_CHAOS_SEEDS=$(SEEDS) \
		cargo test --release --locked -p hartline-tests --no-fail-fast --test conformance --test busy --test chaos

test-packages: build test-setup ## Run workloads of a hundred Debian packages, and write docs/programs.md (as root, an hour)
	HARTLINE=$(abspath $(RELEASE))/hartline HARTLINE_WRITE_PROGRAMS=1 \
		cargo test --release --locked --workspace --no-fail-fast --test packages --test servers -- --include-ignored

test-suites: build test-setup ## Run test suites of other projects, and write docs/suites.md (as root, two hours)
	HARTLINE=$(abspath $(RELEASE))/hartline HARTLINE_WRITE_SUITES=1 \
		cargo test --release --locked --workspace --no-fail-fast --test suites -- --include-ignored

test-emulated: deb test-setup ## Test interrupts, and the service with systemd, on emulated SVM and VT-x (minutes)
	@$(SETUP)/setup.sh emulated
	cargo test --release --locked -p hartline-tests --test svm -- --ignored --test-threads=1

models: setup ## Model-check the handshakes between guest and host, and stress them for 10 s
	$(MODELS)

stress: setup ## Stress the handshakes for STRESS_SECONDS (600)
	HARTLINE_STRESS_SECONDS=$(STRESS_SECONDS) $(MODELS) --test stress

stress-busy: build test-setup ## Run eight VMs at once for BUSY_SECONDS (3600), with 1, 2 and 4 vCPUs in turn
	HARTLINE_BUSY_SECONDS=$(BUSY_SECONDS) HARTLINE_TEST_CPUS=1,2,4 cargo test --release --locked -p hartline-tests --test busy

soak: build test-setup ## Kill the daemon and VMMs and fill the disk, while clients work, for SOAK_SECONDS (1800) (as root)
	HARTLINE=$(abspath $(RELEASE))/hartline HARTLINE_SOAK_SECONDS=$(SOAK_SECONDS) \
		cargo test --release --locked -p hartline-tests --test soak

chaos: build test-setup ## Run pipelines and rows of suites with HARTLINE_CHAOS, SEEDS (100) of them (SEED=…: from there, WHAT=…: these kinds)
	HARTLINE_CHAOS_SEEDS=$(SEEDS) $(if $(SEED),HARTLINE_CHAOS_SEED=$(SEED)) $(if $(WHAT),HARTLINE_CHAOS_WHAT=$(WHAT)) \
		cargo test --release --locked -p hartline-tests --test chaos

fuzz: setup ## Run each fuzz target for FUZZ_SECONDS (60)
	fuzz/run.sh $(FUZZ_SECONDS)

bench-programs: test-setup ## Build the programs that the benchmark runs
	tests/bench/build.sh target/bench-programs

bench: build-bench bench-programs ## Compare with native code and qemu-riscv64
	$(RELEASE)/hartline bench compute --programs target/bench-programs

bench-io: build-bench bench-programs ## The same for servers and their network (as root)
	$(RELEASE)/hartline bench io --programs target/bench-programs

bench-snapshot: build-bench bench-programs ## Measure programs that go on from snapshots, and calls and resets
	$(RELEASE)/hartline bench snapshot --programs target/bench-programs

bench-jit: build-bench test-setup ## The same for programs that make code at run time: node, java, luajit and pypy3
	tests/bench/build.sh target/bench-programs jit
	$(RELEASE)/hartline bench jit --programs target/bench-programs

bench-service: build-bench bench-programs ## Measure the daemon: runs, leaks, idle machines, restart (as root)
	$(RELEASE)/hartline bench service --programs target/bench-programs

deb: build ## Build the Debian package, in target/deb
	@deploy/debian/build.sh $(RELEASE) target/deb

test-deb: deb ## Install, upgrade, remove and purge it in a chroot (as root)
	@deploy/debian/test.sh target/deb/hartline_*.deb

fmt: ## Format the sources
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	cargo fmt --manifest-path tests/models/Cargo.toml

lint: setup ## Check format, clippy, documentation and, with cargo-deny, licences
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path tests/models/Cargo.toml --check
	@# Only the last step of CI builds with these lock files, so an outdated one is reported here.
	cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu --manifest-path fuzz/Cargo.toml
	cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu --manifest-path tests/models/Cargo.toml
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo clippy --release --locked -p hartline --no-default-features -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --release --locked --workspace --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check; \
	else echo "lint: cargo-deny is not installed, licences were not checked"; fi

clean: ## Delete everything that was built or fetched
	rm -rf target .debian .toolchain .venv .venv-sdk
