"""Converts JSON and bytes to tensors and back: pure functions without HTTP or TensorFlow."""
