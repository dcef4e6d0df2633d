# The commands of this project. Those that need an environment make it themselves: $(VENV).
PYTHON ?= python3
VENV ?= .venv
PRESET ?= default
PYTEST := $(VENV)/bin/python -m pytest
# One process a core; the tests of one file stay together, so that they share what is costly to make.
PARALLEL ?= -n auto --maxprocesses 8 --dist loadfile
ENVIRONMENT := $(PYTHON) scripts/environment.py --venv $(VENV) --extras

.DEFAULT_GOAL := help
.PHONY: python help demo test test-all images ops engine-test lint format clean

help:  ## this text
	@echo "make COMMAND [PYTHON=python3.12] [VENV=.venv], with COMMAND one of:"
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  \1\t\2/p' Makefile | expand -t 16

demo: python  ## train a ranking model, export it, serve it, ask it over HTTP
	@$(ENVIRONMENT) server
	@$(VENV)/bin/python examples/demo.py

test: python  ## the tests, but for the slow ones
	@$(ENVIRONMENT) server,test
	@$(PYTEST) $(PARALLEL) -m "not slow and not benchmark"
	@$(VENV)/bin/python scripts/engine_tests.py

test-all: python  ## every test, and the engine's under the sanitizers
	@$(ENVIRONMENT) server,test
	@$(PYTEST) $(PARALLEL) -m "not benchmark"
	@for preset in default engine-asan engine-tsan; do \
	  $(VENV)/bin/python scripts/engine_tests.py --preset $$preset || exit 1; done

bench: python  ## speed beside libcuckoo, TensorFlow and the memory itself; minutes, on a quiet machine
	@$(ENVIRONMENT) server,test
	@cd de_core && cmake --preset default && cmake --build --preset default --target table_bench
	@build/engine/cc/testing/table_bench
	@$(PYTEST) tests/benchmarks -m benchmark

ops: python  ## compile de_core/_de_ops.so into the checkout for the TensorFlow of $(PYTHON)
	@$(PYTHON) scripts/build_ops.py

engine-test: python  ## the engine's C++ tests alone [PRESET=engine-asan, engine-tsan or engine-arm64]
	@$(PYTHON) scripts/engine_tests.py --preset $(PRESET) --require

lint: python  ## ruff, mypy and clang-format, changing nothing
	@$(ENVIRONMENT) server,test,dev
	@$(PYTHON) scripts/lint.py --tools $(VENV)/bin

format: python  ## let ruff and clang-format rewrite the files
	@$(ENVIRONMENT) server,test,dev
	@$(PYTHON) scripts/lint.py --tools $(VENV)/bin --fix

python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Python 3.10 to 3.13 is needed, and there is no $(PYTHON). Run: apt-get install python3 python3-venv"; \
	  exit 1; }

images: python  ## the Dockerfile's images: by Docker, or as root by buildah [IMAGES="trainer gateway"]
	@$(PYTHON) serving_ops/build_images.py $(IMAGES)

clean:  ## remove the environment and everything that was built
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f de_core/_de_ops.so de_core/_de_ops.json
