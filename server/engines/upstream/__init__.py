"""Passes requests on to model servers that speak TensorFlow Serving's gRPC."""
