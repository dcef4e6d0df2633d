"""Forwards requests to model servers over TensorFlow Serving's gRPC."""
