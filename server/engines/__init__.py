"""Engines run the models: in this process, or on model servers."""
