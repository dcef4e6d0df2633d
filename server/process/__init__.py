"""The process: ports, signals, workers, and shutdown."""
