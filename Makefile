# Everything runs inside .venv, which the first `make tune` or `make test` creates.
# `make` alone lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Options of `make tune`: how many configurations to measure, and where the log goes.
TRIALS ?= 64
LOG    ?= dense_1x1000x512.jsonl

# Options of `make test`: ROOM=lowering runs the tests of a room (a folder of tests/unit, or of tests); ARGS has
# more arguments for pytest, such as ARGS="-k split"; SLOW=1 runs the tests that are marked as slow, too; JOBS processes run those that may run beside others (auto: one more than CPUs).
# CPU=x86-64-v3 runs them as on a CPU that has no more than this level (one that has a name of its own
# would be refused by the processes that tests start, as another machine), CACHES=32K,1M,8M as with such caches.
ROOM   ?=
ARGS   ?=
SLOW   ?=
CPU    ?=
CACHES ?=
JOBS   ?= auto
PARALLEL = -n $(JOBS) --maxprocesses 8 --dist worksteal
PLACES = $(if $(ROOM),$(or $(wildcard tests/unit/$(ROOM) tests/$(ROOM)),$(error there are no tests of the room $(ROOM))))
PRETENDED = $(if $(CPU),--cpu $(CPU)) $(if $(CACHES),--caches $(CACHES))
# Bytecode is written whatever the shell says: without it each of the hundreds of processes that the
# tests start would compile the sources again.
smoke test browser oldest: export PYTHONDONTWRITEBYTECODE =

# Options of `make fuzz`: the first seed, and how many, or for how many minutes.
SEED    ?= 0
COUNT   ?= 1000
MINUTES ?=
# And of `make fuzz-devices`: about 2,000 kernels on the OpenCL device.
DEVICE_COUNT ?= 850
WIDE := -max-vthread=1000 -max-vector-bytes=512

# Options of `make soak`: how many trials, and models that are compiled, saved, loaded and run; those
# of PyTorch are among them after `make torch`.
SOAK    ?= 3000
ROUNDS  ?= 100

# Options of `make conformance`: how many cases must pass.
NODE_CASES      ?= 1801
CONVERTED_CASES ?= 82
OPERATOR_CASES  ?= 35
LIGHT_MODELS    ?= bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet \
	vgg19 zfnet512

# Option of `make replay`: the commit to compare with.
BASE    ?= HEAD

# Option of `make tuners`: runs of each tuner on each space.
SEEDS   ?= 60

# A stamp per kind of installation: a second call installs nothing unless one of these changed, the
# second of which has the version.
INSTALLED  := pyproject.toml loopwright/version.py
RUN_STAMP  := $(VENV)/.installed-run
DEV_STAMP  := $(VENV)/.installed-dev
DOCS_STAMP := $(VENV)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help tune smoke test browser oldest torch fuzz fuzz-devices fuzz-inputs check format bench replay soak conformance nightly tuners docs \
	package clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) \
		| sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

# The last layer of a classifier for one image: a trial takes milliseconds. Its default is as good as
# the best, mostly, and the verdict says so.
tune: $(RUN_STAMP) ## set up, then tune a dense layer of one row (TRIALS=64 LOG=dense_1x1000x512.jsonl)
	$(BIN)/loopwright tune dense M=1 N=1000 K=512 --trials $(TRIALS) --log $(LOG)

smoke: $(DEV_STAMP) ## set up, then the shortest check that all parts work together (15 s)
	$(BIN)/python -m pytest -q tests/smoke

# Two passes: what says nothing of times runs in several processes, the rest alone. The second runs
# even if the first found failures. Pytest's status 5 says that a pass had no test to run, which is
# right for one of the two, as with ARGS="-k split"; other statuses than 0, 1 and 5 end the run.
test: $(DEV_STAMP) ## set up, then run the tests (SLOW=1 for slow ones too, ARGS="-k split" to choose)
	@tier='$(if $(SLOW),, and not slow and not docs)'; \
	$(BIN)/python -m pytest $(PARALLEL) -m "not serial and not browser and not package$$tier" $(PRETENDED) $(PLACES) $(ARGS); first=$$?; \
	case $$first in 0|1|5) ;; *) exit $$first ;; esac; \
	$(BIN)/python -m pytest -m "serial$$tier" $(PRETENDED) $(PLACES) $(ARGS); second=$$?; \
	if [ $$first -eq 1 ]; then echo "make test: the first pass found failures, see above" >&2; fi; \
	case $$first,$$second in 0,0|0,5|5,0) ;; *,0|*,5) exit $$first ;; *) exit $$second ;; esac

# Apart from the tests, since it needs what no Python package brings: Chromium and its driver.
browser: $(DEV_STAMP) ## the tests of report pages in a real browser (Debian: chromium chromium-driver)
	$(BIN)/python -m pytest -q -m browser tests/browser $(ARGS)

# On Linux and Windows; elsewhere the same versions are called xgboost.
oldest: $(DEV_STAMP) ## the tests of the learned cost model with the oldest XGBoost that is supported
	@test -d $(VENV)/oldest/xgboost \
		|| $(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/oldest 'xgboost-cpu==2.1.*'
	PYTHONPATH=$(VENV)/oldest $(BIN)/python -m pytest -q $(PARALLEL) \
		tests/unit/tuner/test_xgb_model.py tests/unit/tuner/test_xgb_tuner.py

# PyTorch has no place in `.venv`: its build for CPUs alone takes a gigabyte.
torch: $(DEV_STAMP) ## the tests of models of PyTorch, and of torch.compile
	@test -d $(VENV)/torch/torch || $(PIP) install --quiet --target $(VENV)/torch torch==2.13.0
	PYTHONPATH=$(VENV)/torch $(BIN)/python -m pytest -q tests/unit/graph tests/compatibility -k torch $(ARGS)

fuzz: $(DEV_STAMP) ## random schedules against NumPy, failures printed as programs (SEED=0 COUNT=1000 MINUTES=)
	$(BIN)/python -m fuzzing.fuzz --seed $(SEED) \
		$(if $(MINUTES),--minutes $(MINUTES),--count $(COUNT))

# PoCL takes about a second for a kernel, so that `make test` runs few of them.
fuzz-devices: $(DEV_STAMP) ## random kernels on an OpenCL device, and as cubins (DEVICE_COUNT=850)
	$(BIN)/python -m fuzzing.fuzz --kind threads \
		--target "opencl $(WIDE)" --target "cuda $(WIDE)" --seed $(SEED) --count $(DEVICE_COUNT)

fuzz-inputs: $(DEV_STAMP) ## slightly broken models, graphs, programs, logs and artifacts (SEED=0 COUNT=1000 MINUTES=)
	$(BIN)/python -m fuzzing.fuzz --kind inputs --seed $(SEED) \
		$(if $(MINUTES),--minutes $(MINUTES),--count $(COUNT))

soak: $(DEV_STAMP) ## thousands of trials while everything goes wrong, a hundred models, what is left (SOAK=3000 ROUNDS=100)
	$(BIN)/python -m benchmarks.soak --trials $(SOAK)
	PYTHONPATH=$(wildcard $(VENV)/torch) $(BIN)/python -m benchmarks.soak_models --rounds $(ROUNDS)

# The figures are those that passed at the last count; `docs/onnx-cases.md` lists the others. Whole
# models are compared with ONNX Runtime: onnx's own LRN normalises as many channels as there are images.
conformance: $(DEV_STAMP) ## ONNX's own cases of nodes, those from PyTorch, whole models, by compiled kernels
	$(BIN)/python -m benchmarks.onnx_conformance --least $(NODE_CASES)
	$(BIN)/python -m benchmarks.onnx_conformance --kind pytorch-converted --least $(CONVERTED_CASES)
	$(BIN)/python -m benchmarks.onnx_conformance --kind pytorch-operator --least $(OPERATOR_CASES)
	@test -d $(VENV)/onnxruntime \
		|| $(PIP) install --quiet --no-deps --target $(VENV)/onnxruntime onnxruntime
	PYTHONPATH=$(VENV)/onnxruntime \
		$(BIN)/python -m benchmarks.onnx_models $(LIGHT_MODELS) --seconds 0 --tolerance 1e-4

nightly: ## what takes too long for every change: the slow tests, other CPUs, the soak, an hour of random schedules
	LOOPWRIGHT_FUZZ_EXAMPLES=200 $(MAKE) test SLOW=1
	$(MAKE) test CPU=x86-64-v3
	@if ! grep -q avx512vl /proc/cpuinfo; then echo "no AVX-512: its tests are left out"; else \
		$(MAKE) test CPU=x86-64-v4 CACHES=32K,512K,4M; fi
	$(MAKE) test CACHES=48K,2M,32M
	$(MAKE) torch
	$(MAKE) soak
	$(MAKE) conformance
	$(MAKE) fuzz MINUTES=60
	$(MAKE) fuzz-inputs MINUTES=20
	$(MAKE) fuzz-devices

check: $(DEV_STAMP) ## formatting, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

format: $(DEV_STAMP) ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(DEV_STAMP) ## measure the project: lowering, build, import, throughput, best kernels
	$(BIN)/python -m benchmarks

replay: $(DEV_STAMP) ## compare programs and object code with those of a commit (BASE=HEAD)
	$(BIN)/python -m benchmarks.replay --base $(BASE)

tuners: $(DEV_STAMP) ## compare the tuners on measured spaces, as table and bench_tuners.png (SEEDS=60)
	$(BIN)/python -m benchmarks.tuners --seeds $(SEEDS) --plot bench_tuners.png

# A warning is an error, and every link inside the site leads somewhere. Nothing is fetched.
docs: $(DEV_STAMP) $(DOCS_STAMP) ## set up, then run what documents show, and build the site in site/ (3 min)
	$(BIN)/python -m pytest -q $(PARALLEL) -m "docs and not slow" tests/test_*.py tests/migration
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs site
	$(BIN)/python docs/extension/links.py site
	@echo "the documentation is site/index.html"

# The wheel is made from the sdist, so that one that lacks something cannot be built at all.
package: $(DEV_STAMP) ## build sdist and wheel in dist/, install the wheel elsewhere and try it (1 min)
	rm -rf dist *.egg-info
	@mkdir -p build
	@echo "building sdist and wheel in dist/"
	@$(BIN)/python -m build --outdir dist . >build/package.log 2>&1 || { cat build/package.log; exit 1; }
	$(BIN)/python -m pytest -q -m package tests/package $(ARGS)

clean: ## remove .venv, caches and build leftovers (logs stay)
	rm -rf $(VENV) build dist site docs/tutorials *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find loopwright tests tutorials benchmarks -name __pycache__ -type d -prune \
		-exec rm -rf {} + 2>/dev/null || true

# --- set-up ----------------------------------------------------------------------------------

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "error: '$(PYTHON)' was not found; install Python 3.11 or newer," \
			"or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: loopwright needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) -V 2>&1);" \
			"name a newer one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "error: this Python cannot make a virtual environment (ensurepip is missing);" \
			"on Debian and Ubuntu: apt-get install python$$version-venv" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUN_STAMP): $(INSTALLED) | $(BIN)/python
	@echo "installing loopwright and what it needs into $(VENV) (once)"
	@$(PIP) install --quiet --editable .
	@touch $@

# The development installation holds the other one too.
$(DEV_STAMP): $(INSTALLED) | $(BIN)/python
	@echo "installing loopwright and its development tools into $(VENV) (once)"
	@$(PIP) install --quiet --editable '.[dev]'
	@touch $(RUN_STAMP) $@

$(DOCS_STAMP): $(INSTALLED) | $(BIN)/python
	@echo "installing loopwright and what its documentation needs into $(VENV) (once)"
	@$(PIP) install --quiet --editable '.[docs,plot]'
	@touch $(RUN_STAMP) $@
