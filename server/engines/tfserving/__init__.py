"""TensorFlow Serving's gRPC: a client of model servers, and the services for such clients."""
