"""What a user of the example can put right."""


class DataError(ValueError):
    """The log, or what was asked of it, cannot be used; the message says what to do about it."""
