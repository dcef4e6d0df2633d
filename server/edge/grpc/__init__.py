"""gRPC: TensorFlow Serving's services over the data plane."""
