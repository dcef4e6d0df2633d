"""Requests that HTTP itself refuses, before or while their body is read."""


class RefusedError(Exception):
    """A refusal, with its HTTP status.

    Attributes:
        status: The HTTP status.
        message: What the client is told.
        close: Whether the connection is closed after the answer.
        linger: Whether the client may go on sending for a while before that.
    """

    def __init__(
        self, status: int, message: str, *, close: bool = True, linger: bool = False
    ) -> None:
        """Makes the refusal."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.close = close
        self.linger = linger
