"""TensorFlow Serving's messages, read and written without running TensorFlow."""
