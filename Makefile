PYTHON ?= python3

.PHONY: ops
ops:  ## compile de_core/_de_ops.so into the checkout for $(PYTHON)'s TensorFlow
	@$(PYTHON) scripts/build_ops.py
