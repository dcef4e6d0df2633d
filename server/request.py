"""A request over any transport: its record, the model that it asks, and its answer."""

import dataclasses
import functools
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from .errors import Code, ServingError, invalid, not_found

Headers = tuple[tuple[bytes, bytes], ...]

#: Key of an ASGI scope: the `Request` of the request.
RECORD = "gateway.record"
# The headers that the gateway forwards to a model server. gRPC refuses metadata with other
# characters or long values, and the request with it.
_FORWARDED = (b"traceparent", b"tracestate")
_FORWARDABLE = re.compile(rb"[ -~]{1,512}")


@dataclasses.dataclass(slots=True)
class Request:
    """A request: what the client sent, what the gateway found out, and the time of each stage.

    Attributes:
        id: Returned as `x-request-id` and logged; empty for the gateway's own work.
        method: HTTP method; POST for gRPC.
        path: The undecoded path, without the query.
        query: The query, undecoded.
        headers: Values by lower-case name; the first value if a name repeats.
        address: The client's address.
        timeout: Seconds that the transport allows; None for no limit.
        verb: The request's verb, once known.
        model: The requested model, once known.
        client: Owner of the request's key, if keys are needed.
        counted_as: The client's name for the limits.
        scopes: The key's scopes; None if no key is needed.
        status: The HTTP status of the answer; 499 if the client disconnected first; 0 before both.
        received_bytes: Size of the received body.
        sent_bytes: Size of the sent body.
        deadline: Time by which the answer is due, on the clock `time.monotonic`; None for never.
        stages: Seconds spent by stage: `read`, `decode`, `queue`, `run`, `encode`.
        rows: Rows of the request, if it has any.
        lookups: By table, the number of ids that were looked up, and how many of them are unknown.
    """

    id: str = ""
    method: str = "POST"
    path: bytes = b""
    query: bytes = b""
    headers: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)
    address: str = ""
    timeout: float | None = None
    verb: str = "other"
    model: str = ""
    client: str = ""
    counted_as: str = ""
    scopes: frozenset[str] | None = None
    status: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    deadline: float | None = None
    stages: defaultdict[str, float] = dataclasses.field(
        default_factory=functools.partial(defaultdict, float)
    )
    rows: int | None = None
    lookups: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Headers to forward to a model server, by lower-case name."""
        if not self.id:
            return ()
        return (
            ("x-request-id", self.id),
            *(
                (name.decode(), self.headers[name].decode())
                for name in _FORWARDED
                if _FORWARDABLE.fullmatch(self.headers.get(name, b""))
            ),
        )

    def remaining(self) -> float | None:
        """Returns the remaining seconds; None if there is no deadline.

        Raises:
            ServingError: DEADLINE_EXCEEDED if the deadline has passed.
        """
        if self.deadline is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise deadline_exceeded()
        return left


def deadline_exceeded() -> ServingError:
    """Returns the error for an answer that missed the deadline."""
    return ServingError(Code.DEADLINE_EXCEEDED, "Deadline exceeded")


# The record of the gateway's own work, such as polls. Nobody reads what it counts.
_OWN_WORK = Request()
_CURRENT: ContextVar[Request] = ContextVar("request", default=_OWN_WORK)
#: Returns the request that the running task answers; one without an id outside of requests.
current_request = _CURRENT.get
#: Makes a request the request of the running task.
begin_request = _CURRENT.set


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A model and one of its versions: by number, by label, or the newest if neither is given.

    `by_weight` is True if a traffic split chose the version: another one may replace it.
    """

    name: str
    version: int | None = None
    label: str | None = None
    by_weight: bool = dataclasses.field(default=False, kw_only=True)

    def not_found(self) -> ServingError:
        """Returns the error for a model or version that does not serve.

        Checks the label first: TensorFlow Serving reports a label of an unknown model as an unknown
        label, not as an unknown model.
        """
        if self.label is not None:
            return self.unknown_label()
        wanted = "Latest" if self.version is None else "Specific"
        version = "" if self.version is None else f", {self.version}"
        return not_found(f"Servable not found for request: {wanted}({self.name}{version})")

    def unknown_label(self) -> ServingError:
        """Returns the error for an unknown label."""
        return invalid(f"Unrecognized servable version label: {self.label}")


@dataclasses.dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        body: JSON text, or bytes of another media type. A tuple holds the parts of the body, which
            are sent one after the other; each part is bytes or a uint8 array of rank 1.
        version: The model version that answered; None if no version did.
        media_type: The media type of the body; empty without a body.
        headers: Further headers of the answer.
        status: The HTTP status.
    """

    body: bytes | tuple[Any, ...]
    version: int | None = None
    media_type: str = "application/json"
    headers: Headers = ()
    status: int = 200
