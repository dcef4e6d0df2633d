"""The exceptions for refused requests, and their status codes.

Codes and their HTTP numbers match TensorFlow Serving's REST API, so clients of TensorFlow Serving
understand them.
"""

import enum
import functools
from typing import Any


class Code(enum.Enum):
    """Canonical status codes, with the names of gRPC and TensorFlow, and their HTTP statuses."""

    http: int

    OK = "OK", 200
    CANCELLED = "CANCELLED", 499
    UNKNOWN = "UNKNOWN", 500
    INVALID_ARGUMENT = "INVALID_ARGUMENT", 400
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED", 504
    NOT_FOUND = "NOT_FOUND", 404
    ALREADY_EXISTS = "ALREADY_EXISTS", 409
    PERMISSION_DENIED = "PERMISSION_DENIED", 403
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED", 429
    FAILED_PRECONDITION = "FAILED_PRECONDITION", 400
    ABORTED = "ABORTED", 409
    OUT_OF_RANGE = "OUT_OF_RANGE", 400
    UNIMPLEMENTED = "UNIMPLEMENTED", 501
    INTERNAL = "INTERNAL", 500
    UNAVAILABLE = "UNAVAILABLE", 503
    DATA_LOSS = "DATA_LOSS", 500
    UNAUTHENTICATED = "UNAUTHENTICATED", 401

    def __new__(cls, name: str, http: int) -> "Code":
        """Creates a member whose value is its name."""
        code = object.__new__(cls)
        code._value_ = name
        code.http = http
        return code


# An error with one of these codes describes a fault of the server, not of the request. The client
# gets only the request's id; the log gets the message.
PRIVATE_CODES = frozenset({Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS})


class ServingError(Exception):
    """A refused request, with the code and the message for the client.

    Attributes:
        code: The code of gRPC.
        message: The message for the client.
        retry_after: Seconds after which a retry makes sense, or None.
        status: The HTTP status. It follows from the code, except in `RefusedError`.
        close: Whether the answer closes the connection.
        linger: Whether the client may keep sending for a while before the connection closes.
    """

    close = linger = False

    def __init__(self, code: Code, message: str, *, retry_after: float | None = None) -> None:
        """Creates the error.

        Args:
            code: The kind of failure; it determines the HTTP status.
            message: The sentence for the client. With a code in `PRIVATE_CODES` it only goes to the
                log.
            retry_after: Seconds after which a retry makes sense, or None. One for UNAVAILABLE.
        """
        super().__init__(message)
        self.code, self.status = code, code.http
        self.message = message
        if retry_after is None and code is Code.UNAVAILABLE:
            retry_after = 1.0
        self.retry_after = retry_after

    def __reduce__(self) -> Any:
        return ServingError, (self.code, self.message), vars(self)


def too_many(waiting: str, count: int) -> ServingError:
    """Returns the error for a full queue, e.g. of `rows wait for the model`."""
    text = f"Too many {waiting}: {count}. Try again later."
    return ServingError(Code.RESOURCE_EXHAUSTED, text, retry_after=1.0)


# Errors by their code.
invalid = functools.partial(ServingError, Code.INVALID_ARGUMENT)
not_found = functools.partial(ServingError, Code.NOT_FOUND)
failed_precondition = functools.partial(ServingError, Code.FAILED_PRECONDITION)
unimplemented = functools.partial(ServingError, Code.UNIMPLEMENTED)
unavailable = functools.partial(ServingError, Code.UNAVAILABLE)
internal = functools.partial(ServingError, Code.INTERNAL)


class RefusedError(ServingError):
    """The request breaks a rule of HTTP. Nobody reads its body."""

    def __init__(
        self, status: int, message: str, *, close: bool = True, linger: bool = False
    ) -> None:
        """Creates the refusal."""
        super().__init__(Code.INVALID_ARGUMENT, message)
        self.status, self.close, self.linger = status, close, linger


class StartError(Exception):
    """The process cannot start; the message says what to do."""
