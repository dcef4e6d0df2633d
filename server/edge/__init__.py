"""Transports: each turns its requests into the data plane's and answers back."""
