"""Converts JSON and bytes to tensors and back: no HTTP, no TensorFlow. `Codec` chooses where."""
