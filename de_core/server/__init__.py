"""Runs a process of a TensorFlow cluster with the op library: `python -m de_core.server`."""
