"""The exceptions for refused requests, and their status codes.

Codes and their HTTP numbers match TensorFlow Serving's REST API, so clients of TensorFlow Serving
understand them.
"""

import enum


class Code(enum.Enum):
    """Canonical status codes, with the names of gRPC and TensorFlow."""

    OK = "OK"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


HTTP_STATUS: dict[Code, int] = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}

# An error with one of these codes describes a fault of the server, not of the request. The client
# gets only the request's id; the log gets the message.
PRIVATE_CODES = frozenset({Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})


class ServingError(Exception):
    """A refused request, with the code and the message for the client."""

    def __init__(self, code: Code, message: str, *, retry_after: float | None = None) -> None:
        """Creates the error.

        Args:
            code: The kind of failure; it determines the HTTP status.
            message: The sentence for the client. With a code in `PRIVATE_CODES` it only goes to the
                log.
            retry_after: Seconds after which a retry makes sense, or None.
        """
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


def invalid(message: str) -> ServingError:
    """Returns the error for an invalid request."""
    return ServingError(Code.INVALID_ARGUMENT, message)


class RefusedError(Exception):
    """The request breaks a rule of HTTP. Nobody reads its body.

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


class StartError(Exception):
    """The process cannot start; the message says what to do."""
