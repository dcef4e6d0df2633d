"""Optimizers of Keras 3 over tables."""
