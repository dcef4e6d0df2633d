"""The one exception the gateway answers with, and the status codes it may carry.

Codes and their HTTP numbers are those of TensorFlow Serving's REST API, so that a client
of the one understands the other.
"""

import enum


class Code(enum.Enum):
    """Canonical status codes, by the names gRPC and TensorFlow give them."""

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

# Codes whose message says something about the server and not about the request: the
# client is given the request id instead, the log keeps the message.
PRIVATE_CODES = frozenset({Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})


class ServingError(Exception):
    """A request that cannot be answered, with the code and the sentence for the client."""

    def __init__(self, code: Code, message: str, *, retry_after: float | None = None) -> None:
        """Makes the error.

        Args:
            code: What kind of failure it is; decides the HTTP status.
            message: The sentence for the client. For the codes in `PRIVATE_CODES` it goes
                to the log only.
            retry_after: Seconds after which trying again makes sense, if it does.
        """
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


def invalid(message: str) -> ServingError:
    """Returns the error for a request that is wrong in itself."""
    return ServingError(Code.INVALID_ARGUMENT, message)
