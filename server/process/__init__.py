"""The process: ports, signals, workers, and the way out."""
