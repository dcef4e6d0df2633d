"""JSON to tensors and back: pure functions, no HTTP, no engine, no TensorFlow."""
