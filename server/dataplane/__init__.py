"""Answers requests to models, whatever transport they come through."""
