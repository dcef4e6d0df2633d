"""Lookups: dense, ragged, sparse, pooled, and many tables at once."""
