"""Errors that a user of the example can fix."""


class DataError(ValueError):
    """The log, or an option, cannot be used; the message says how to fix it."""
