"""The parts of the ranking example: reading a log, splitting it, training on it, measuring it."""
