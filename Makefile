# SPDX-License-Identifier: Apache-2.0
# Everything lives in .venv and build/ of this checkout. Needed beforehand: python3 >= 3.10, g++, make.
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

BIN := .venv/bin
STAMPS := .venv/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Python compiles what it imports; pip, file by file, would compile all the rest as well.
INSTALL := $(PIP) install -q --no-compile
# No build isolation: cmake keeps its build directory, so a second install takes seconds. Editable: the
# checkout is the package, so Python files count as they are (.ci/backend.py).
INSTALL_OURS = $(INSTALL) --no-build-isolation -e

# What the compiled modules are made of. Directories too, so that a deleted file also counts as a change.
SOURCES := $(shell find cpp_ext/CMakeLists.txt cpp_ext/cmake cpp_ext/include cpp_ext/src transactions/machine/devices)

export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export PIP_NO_INPUT := 1
export PYTHON
# Images set it; the hundreds of processes that tests start would then compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick nightly sanitize tsan fuzz fuzz-one lint format generate generated figures catalog conformance bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo       set up, then classify real handwritten digits on the simulated NPU'
	@echo 'make test       set up, then run every test: Python, C++, ONNX'
	@echo 'make quick      the tests that take seconds'
	@echo 'make nightly    every test with whole tables, sanitizers, and fuzzing for ten minutes per target'
	@echo 'make sanitize   the C++ tests under AddressSanitizer and UBSan'
	@echo 'make tsan       those that use threads under ThreadSanitizer'
	@echo 'make fuzz       hostile input for a minute per target; SECONDS=600 TARGET=decode: see tests/fuzz'
	@echo 'make lint       ruff and mypy        make format     apply ruff'
	@echo 'make generate   rewrite the generated C++ headers and pages'
	@echo 'make figures    rewrite models/figures/costs.md: modelled cycles and bytes of the examples'
	@echo 'make conformance  rewrite operators/CONFORMANCE.md: ONNX'"'"'s backend tests, by operator and type'
	@echo 'make bench      our time beside onnxruntime'"'"'s, kernels at every SIMD level'
	@echo 'make clean      remove .venv and build'

demo: $(STAMPS)/demo
	@$(BIN)/python models/demo.py

test: $(STAMPS)/dev
	@$(BIN)/python .ci/tests.py --jobs $(JOBS)

quick: $(STAMPS)/dev
	@$(BIN)/python .ci/tests.py --jobs $(JOBS) --only quick

# Both run to their end, whichever fails.
nightly: $(STAMPS)/dev
	@$(BIN)/python .ci/tests.py --jobs $(JOBS) --nightly; code=$$?; $(MAKE) fuzz SECONDS=600 && exit $$code

sanitize: $(STAMPS)/dev
	@$(BIN)/python .ci/tests.py --jobs $(JOBS) --only sanitize

tsan: $(STAMPS)/dev
	@$(BIN)/python .ci/tests.py --jobs $(JOBS) --only tsan

# Per target: SECONDS, or RUNS, which are the same every time. What is found lies in build/fuzz/findings.
SECONDS ?= 60
fuzz: $(STAMPS)/fuzz
	@$(BIN)/python -m tests.fuzz.campaign --seconds $(SECONDS) --runs $(or $(RUNS),0) --jobs $(JOBS) $(if $(TARGET),--target $(TARGET))

fuzz-one: $(STAMPS)/fuzz
	@$(BIN)/python -m tests.fuzz.campaign --target $(TARGET) --input $(INPUT)

lint: $(STAMPS)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p onedispatch
	$(BIN)/mypy models .ci/backend.py .ci/tests.py tests/arch tests/examples tests/conftest.py

format: $(STAMPS)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Formats and kernels are declared in Python; C++ reads headers made from that. No build comes before: where
# something new is declared, C++ compiles with the new headers only.
generate: $(if $(wildcard $(STAMPS)/dev $(STAMPS)/demo),,$(STAMPS)/dev)
	$(BIN)/python -m onedispatch.operators.codegen.genheader cpp_ext/include/onedispatch
	$(BIN)/python -m onedispatch.operators.codegen.gendocs operators
	$(BIN)/python -m onedispatch.transactions.codegen.genheader cpp_ext/include/onedispatch
	$(BIN)/python -m onedispatch.transactions.codegen.genreadme transactions/README.md
	$(BIN)/python -m onedispatch.dispatch.codegen.gendocs ARCHITECTURE.md

generated: $(STAMPS)/dev
	$(BIN)/pytest -q -p no:cacheprovider tests/arch/test_generated.py

# What the examples cost on the modelled devices; ONLY=part of a name leaves the other rows.
figures: $(STAMPS)/dev
	@$(BIN)/python -m tests.e2e.figures $(ONLY)

# Goes on tuning the example networks, and writes the catalog that ships. After a change of what is emitted,
# `make catalog MINUTES=0` builds its code objects again; after one of the clock, or of a device's constants,
# `make catalog MINUTES=0 AGAIN=--again` measures what is known once more first.
MINUTES ?= 20
catalog: $(STAMPS)/dev
	@$(BIN)/python -m models.catalog --minutes $(MINUTES) $(AGAIN)

# Where ONNX's backend tests run, and which pass.
conformance: $(STAMPS)/dev
	@$(BIN)/python -m tests.onnx_node.conformance

# google-benchmark's program, of the libraries that the package was built from. Always made: ninja knows what changed.
BENCH := build/bench/onedispatch_bench
.PHONY: $(BENCH)
$(BENCH): $(STAMPS)/dev
	@prefix=$$(.ci/bootstrap benchmark) && libraries=$$(ls -d "$(CURDIR)"/build/cp*/libonedispatch_sim.a | head -n 1) && \
	  cmake -S cpp_ext -B build/bench -G Ninja -DONEDISPATCH_BENCH=ON -DCMAKE_PREFIX_PATH="$$prefix" \
	    -DONEDISPATCH_LIBRARIES="$${libraries%/*}" >/dev/null && cmake --build build/bench

bench: $(STAMPS)/dev $(BENCH)
	@$(BIN)/pytest tests/bench -m bench --benchmark-only --benchmark-columns=median,iqr,rounds
	@$(BIN)/onedispatch bench light_squeezenet light_resnet50 light_densenet121 --threads 1 --threads 2
	@$(BIN)/python -m tests.bench.networks
	@$(BIN)/python -m tests.bench.operators
	@$(BENCH) --benchmark_min_time=0.05
	@$(BIN)/python -m tests.bench.levels --every

clean:
	rm -rf .venv build dist cpp_ext/_core.*.so transactions/format/_native.*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks

$(STAMPS)/venv: .ci/bootstrap
	@.ci/bootstrap venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tools: $(STAMPS)/venv
	@echo 'setup: build tools'
	@$(INSTALL) 'cmake>=3.26' 'ninja>=1.11' 'pybind11>=2.13' 'scikit-build-core>=1.0.1'
	@touch $@

# demo and dev differ in what else they install; either leaves the package itself up to date.
$(STAMPS)/demo $(STAMPS)/dev: $(STAMPS)/%: $(STAMPS)/tools $(SOURCES) pyproject.toml .ci/backend.py LICENSE
	@echo 'setup: building and installing onedispatch'
	@$(INSTALL_OURS) '.[$*]'
	@touch $@

# Without atheris the Python targets are fuzzed blindly, and say so.
ATHERIS = from importlib.metadata import requires; print(next(r for r in requires('onedispatch') if r.startswith('atheris')))
$(STAMPS)/fuzz: $(STAMPS)/dev
	@$(INSTALL) --only-binary :all: "$$($(BIN)/python -c "$(ATHERIS)" | cut -d';' -f1)" || \
	  echo 'setup: there is no atheris for this machine'
	@touch $@
