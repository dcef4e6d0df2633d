"""What only TensorFlow 1 graphs need."""
