"""Classes and functions with the arguments of `tfra.dynamic_embedding`."""
