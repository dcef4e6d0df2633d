"""Metrics and logs of the gateway."""
