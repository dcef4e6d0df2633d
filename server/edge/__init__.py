"""Transports: each converts its requests and answers for the data plane."""
