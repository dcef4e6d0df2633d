"""`Variable`, the public embedding table, with its gradients and its checkpoint state."""
