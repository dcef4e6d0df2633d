# The commands of this project. They create the environment $(VENV) if they need it.
PYTHON ?= python3
VENV ?= .venv
PRESET ?= default
PYTEST := $(VENV)/bin/python -m pytest
# One process per core. The tests of one file stay together, so that they share expensive fixtures.
PARALLEL ?= -n auto --maxprocesses 8 --dist loadfile
IMAGES ?= wheel trainer gateway gateway-front dev
BUILD ?=
ENVIRONMENT := $(PYTHON) scripts/environment.py --venv $(VENV) --extras

.DEFAULT_GOAL := help
.PHONY: python help demo docs test test-all images ops engine-test lint format clean

help:  ## show this text
	@echo "make COMMAND [PYTHON=python3.12] [VENV=.venv], with COMMAND one of:"
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  \1\t\2/p' Makefile | expand -t 16

demo: python  ## train a ranking model, export it, serve it, ask it over HTTP
	@$(ENVIRONMENT) server
	@$(VENV)/bin/python examples/demo.py

docs: python  ## build the documentation's site into site/, without a network; open site/index.html
	@$(ENVIRONMENT) docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

test: python  ## run the tests except the slow ones
	@$(ENVIRONMENT) server,test,docs --tests
	@$(VENV)/bin/python scripts/engine_tests.py
	@$(PYTEST) $(PARALLEL) -m "not slow and not quiet"

test-all: python  ## run every test; compile each C++ source by itself; run the engine's tests under the sanitizers
	@$(ENVIRONMENT) server,test,docs,proofs,dev --tests
	@DE_SIM_SEEDS=1500 DE_ALLOC_SWEEP=dense $(VENV)/bin/python scripts/engine_tests.py
	@$(PYTEST) $(PARALLEL) -m "not quiet"
	@$(VENV)/bin/python scripts/build_ops.py --check
	@for preset in engine-asan engine-tsan; do \
	  $(VENV)/bin/python scripts/engine_tests.py --preset $$preset || exit 1; done

bench: python  ## write docs/reference/benchmark-record.md [TFRA=python FBGEMM=python]; half an hour, on a quiet machine
	@$(ENVIRONMENT) server,test,docs
	@$(VENV)/bin/python scripts/engine_tests.py --only table_bench --no-run
	@$(VENV)/bin/python bench/record.py $(if $(TFRA),--tfra $(TFRA)) $(if $(FBGEMM),--fbgemm $(FBGEMM))

ops: python  ## compile de_core/_de_ops.so into the checkout for the TensorFlow of $(PYTHON)
	@$(PYTHON) scripts/build_ops.py

engine-test: python  ## run only the engine's C++ tests [PRESET=engine-asan, engine-tsan or engine-arm64]
	@$(PYTHON) scripts/engine_tests.py --preset $(PRESET)

lint: python  ## check with ruff, mypy and clang-format
	@$(ENVIRONMENT) server,test,dev
	@$(PYTHON) scripts/lint.py --tools $(VENV)/bin

format: python  ## format the files with ruff and clang-format
	@$(ENVIRONMENT) server,test,dev
	@$(PYTHON) scripts/lint.py --tools $(VENV)/bin --fix

python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Python 3.10 to 3.13 is needed, and there is no $(PYTHON). Run: apt-get install python3 python3-venv g++"; \
	  exit 1; }

images:  ## build the Dockerfile's images with Docker [IMAGES="trainer gateway"] [BUILD="--build-arg NAME=VALUE"]
	@for image in $(IMAGES); do docker build --target $$image --tag de-core/$$image \
	  $$(sed -n 's/^[A-Z]/--build-arg &/p' serving_ops/versions.env) $(BUILD) . || exit 1; done

clean:  ## remove the environment and all build results
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f de_core/_de_ops.so de_core/_de_tfra_ops.so de_core/_de_ops.json
