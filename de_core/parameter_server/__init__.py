"""The command `python -m de_core.parameter_server`: a process of a cluster with the op library."""
