"""TensorFlow 1 optimizers that train tables."""
