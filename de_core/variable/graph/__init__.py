"""Support for TensorFlow 1 graphs, sessions and Savers."""
