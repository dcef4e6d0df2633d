"""Optimizers of tf_keras over tables."""
