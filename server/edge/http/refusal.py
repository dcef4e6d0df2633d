"""Refusals of requests by rules of HTTP, before or while the body is read."""


class RefusedError(Exception):
    """The request breaks a rule of HTTP.

    Attributes:
        status: The HTTP status.
        message: The error message for the client.
        close: Whether the answer closes the connection.
        linger: Whether the client may keep sending for a while before the connection closes.
    """

    def __init__(
        self, status: int, message: str, *, close: bool = True, linger: bool = False
    ) -> None:
        """Creates the refusal."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.close = close
        self.linger = linger
