"""gRPC: TensorFlow Serving's services on the data plane."""
