# `make demo` and `make test` are what a user needs; the rest is for people who change the code.
# Every step prints its seconds. CARGO and CARGOFLAGS can be set, for example CARGOFLAGS=--offline.

SHELL := /bin/bash
.DEFAULT_GOAL := help

CARGO ?= cargo
CARGOFLAGS ?=
# The oracle of the tests; never part of a release build.
FEATURES := parity,metrics,redis
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# Where `make package` puts tarballs and verifies them.
PACKAGE_DIR := target/tarballs
APT := $(if $(filter 0,$(shell id -u)),apt-get,sudo apt-get)

# $(call step,name,command): runs it and says how long it took
step = printf '\n== %s\n' '$(1)'; start=$$(date +%s); $(2) && printf '== %s: %d s\n' '$(1)' $$(($$(date +%s) - start))

.PHONY: help
help:
	@echo 'make demo            build llava-cli (installs cmake if missing) and ask the demo model about three pictures'
	@echo 'make test            build everything and run all tests'
	@echo 'make deps            install what a build needs and is missing (cmake)'
	@echo 'make fmt clippy doc  format; lints and documentation, warnings are errors'
	@echo 'make bindings        rewrite the committed bindings from the headers (needs libclang)'
	@echo 'make bindings-check  fail when the committed bindings have drifted'
	@echo 'make package         make every crate as a tarball and build each from its tarball alone'
	@echo 'make overrides       build against prebuilt libraries and a source given by hand'
	@echo 'make sanitize        tests under the address and undefined behaviour sanitizers'
	@echo 'make bench           benchmarks'
	@echo 'make eval-record     record the answers that the regression gate compares with'
	@echo 'make parity PEER=..  compare answers with a llama-mtmd-cli of the same build'

.PHONY: deps
deps:
	@if command -v "$${CMAKE:-cmake}" >/dev/null; then exit 0; fi; \
	if command -v apt-get >/dev/null; then \
	    $(APT) update -q && $(APT) install -y -q --no-install-recommends cmake; \
	else \
	    echo 'CMake 3.14 or newer is missing, and there is no apt-get to install it with.' >&2; \
	    echo 'macOS: brew install cmake. Elsewhere: https://cmake.org/download, then put it on PATH or set CMAKE.' >&2; \
	    exit 1; \
	fi

.PHONY: demo
demo: deps
	@echo 'The first build compiles llama.cpp: some minutes and about 1 GB in target/, with no news from cargo meanwhile.'
	@$(call step,build llava-cli,$(CARGO) build $(CARGOFLAGS) --release --bin llava-cli)
	@ask() { \
	    printf '\n%s: %s\n  ' "$$1" "$$2" && \
	    $(CARGO) run $(CARGOFLAGS) --quiet --release --bin llava-cli -- \
	        --image "models/demo/$$1" -p "$$2" --temp 0 -v; \
	} && \
	ask sign.png 'What word is written?' && \
	ask shapes.png 'Describe the image.' && \
	ask above.png 'What is above the star?'

# A real server for the tests of the shared tier; they start and stop it themselves.
.PHONY: test-deps
test-deps: deps
	@if command -v redis-server >/dev/null || command -v valkey-server >/dev/null; then exit 0; fi; \
	if command -v apt-get >/dev/null; then \
	    $(APT) update -q && $(APT) install -y -q --no-install-recommends redis-server; \
	else \
	    echo 'redis-server or valkey-server is missing, and there is no apt-get to install it with.' >&2; exit 1; \
	fi

.PHONY: test
test: test-deps
	@$(call step,cargo build,$(CARGO) build $(CARGOFLAGS) --workspace --all-targets --features $(FEATURES))
	@$(call step,cargo test,$(CARGO) test $(CARGOFLAGS) --workspace --features $(FEATURES))

.PHONY: fmt fmt-check
fmt:
	$(CARGO) fmt --all
fmt-check:
	@$(call step,format,$(CARGO) fmt --all --check)

.PHONY: clippy
clippy: deps
	@$(call step,clippy,$(CARGO) clippy $(CARGOFLAGS) --workspace --all-targets --features $(FEATURES) -- -D warnings)

.PHONY: doc
doc: deps
	@$(call step,documentation,RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(CARGOFLAGS) --workspace --no-deps --features $(FEATURES))

# The build script stops after the bindings when LLAVA_BINDINGS is set, so neither target builds anything native.
.PHONY: bindings bindings-check
bindings:
	LLAVA_BINDINGS=write $(CARGO) check $(CARGOFLAGS) -p llava-sys --features bindgen,parity
bindings-check:
	@$(call step,bindings,LLAVA_BINDINGS=check $(CARGO) check $(CARGOFLAGS) -p llava-sys --features bindgen$(,)parity)
, := ,

# --allow-dirty: CI has a clean checkout anyway, and a person wants to try before committing.
.PHONY: package
package: deps
	@$(call step,packages,$(CARGO) package $(CARGOFLAGS) --workspace --allow-dirty --target-dir $(PACKAGE_DIR))

.PHONY: overrides
overrides: deps
	@$(call step,overrides,llava-sys/tests/overrides.sh)

# --target keeps the sanitizer's link flags away from build scripts and procedural macros. GCC's shared runtime insists on
# being the first library of the process, which the order of rustc's link line does not give it: it is preloaded.
ASAN_RUNTIME = $(shell $${CXX:-c++} -print-file-name=libasan.so 2>/dev/null)
RUNNER = CARGO_TARGET_$(shell echo '$(HOST)' | tr 'a-z-' 'A-Z_')_RUNNER
.PHONY: sanitize
sanitize: deps
	@$(call step,sanitize,\
	    LLAVA_SANITIZE=address$(,)undefined \
	    RUSTFLAGS='-Clink-arg=-fsanitize=address -Clink-arg=-fsanitize=undefined' \
	    $(if $(filter /%,$(ASAN_RUNTIME)),$(RUNNER)='env LD_PRELOAD=$(ASAN_RUNTIME)') \
	    ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1 \
	    $(CARGO) test $(CARGOFLAGS) --workspace --features $(FEATURES) --lib --tests --target $(HOST) --target-dir target/sanitize)

.PHONY: bench
bench: deps
	@$(call step,benchmarks,$(CARGO) bench $(CARGOFLAGS))

.PHONY: parity
parity: deps
	@if [ -z "$(PEER)" ]; then echo 'usage: make parity PEER=path/to/llama-mtmd-cli (build b11434)' >&2; exit 2; fi
	@$(call step,build llava-cli,$(CARGO) build $(CARGOFLAGS) --release --bin llava-cli)
	@$(call step,comparison with the peer,python3 scripts/compare_with_peer.py --peer "$(PEER)" --ours target/release/llava-cli)

# After a change of the demo model's weights: the answers that the regression gate compares with.
.PHONY: eval-record
eval-record: deps
	@$(call step,record answers,LLAVA_RECORD_ANSWERS=1 $(CARGO) test $(CARGOFLAGS) --features $(FEATURES) --test it cli::gate)
	@head -6 tests/it/cli/gate.tsv
