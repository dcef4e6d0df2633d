"""Keras 3 optimizers that train tables."""
