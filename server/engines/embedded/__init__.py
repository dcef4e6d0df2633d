"""Runs SavedModels in this process."""
