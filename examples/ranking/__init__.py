"""Parts of the ranking example: reading a log, splitting it, training, measuring."""
