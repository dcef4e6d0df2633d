"""The parts of `de.export` and `de.publish`."""
