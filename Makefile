PYTHON ?= python3

.PHONY: ops
ops:  ## compile de_core/_de_ops.so into the checkout for $(PYTHON)'s TensorFlow
	@$(PYTHON) scripts/build_ops.py

# make engine-test PRESET=engine-asan runs the same tests under a sanitizer.
PRESET ?= default
.PHONY: engine-test
engine-test:  ## the engine's C++ tests, without TensorFlow
	@cd de_core && cmake --preset $(PRESET) >/dev/null && cmake --build --preset $(PRESET) -j 2 && ctest --preset $(PRESET)
