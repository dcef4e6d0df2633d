"""Answers requests to models, independently of the transport."""
