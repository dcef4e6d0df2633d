"""A process of a TensorFlow cluster with the op library in it: `python -m de_core.server`."""
