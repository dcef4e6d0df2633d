"""Optimizers of TensorFlow 1 over tables."""
