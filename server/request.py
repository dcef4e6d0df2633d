"""The one record of a request, from its arrival to its answer, whatever transport brings it."""

import dataclasses
import time
from collections.abc import Mapping
from contextvars import ContextVar

from server.errors import Code, ServingError

# A model server behind the gateway is told these of a request's headers.
_FORWARDED = (b"traceparent", b"tracestate")


@dataclasses.dataclass
class Request:
    """What the client sent, what is known of it by now, and where its time went.

    Attributes:
        id: Sent back as `x-request-id`, and written to the log; empty for the gateway's own work.
        method: HTTP method; POST for gRPC.
        path: The undecoded path, without the query.
        query: The query, undecoded.
        headers: Values by lower-case name; of several with one name the first.
        address: The client's address.
        timeout: Seconds that the transport itself grants; None for no bound.
        verb: What is asked for, once that is known.
        model: The model asked for, once that is known.
        client: Owner of the key that the request came with, if keys are needed.
        scopes: What that key opens; None if no key is needed.
        status: The HTTP status answered; 499 if the client left before; 0 before either.
        received_bytes: Size of the body received.
        sent_bytes: Size of the body sent.
        deadline: When the answer is due, on the clock of `time.monotonic`; None for never.
        stages: Seconds spent by stage: `read`, `decode`, `queue`, `run`, `encode`.
        rows: Rows of the request, if it has any.
        lookups: By table, the number of ids looked up and of those that are unknown.
        sample: By table, some of the ids that were found.
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
    scopes: frozenset[str] | None = None
    status: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    deadline: float | None = None
    stages: dict[str, float] = dataclasses.field(default_factory=dict)
    rows: int | None = None
    lookups: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    sample: dict[str, list[int | str]] = dataclasses.field(default_factory=dict)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Headers that go on to a model server, by lower-case name."""
        if not self.id:
            return ()
        return (
            ("x-request-id", self.id),
            *(
                (name.decode(), self.headers[name].decode("latin-1"))
                for name in _FORWARDED
                if name in self.headers
            ),
        )

    def remaining(self) -> float | None:
        """Returns the seconds left; None if there is no deadline.

        Raises:
            ServingError: DEADLINE_EXCEEDED if none are left.
        """
        if self.deadline is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise deadline_exceeded()
        return left

    def spent(self, stage: str, seconds: float) -> None:
        """Adds to the time of a stage."""
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds


def deadline_exceeded() -> ServingError:
    """Returns the error for an answer that was not there in time."""
    return ServingError(Code.DEADLINE_EXCEEDED, "Deadline exceeded")


_CURRENT: ContextVar[Request | None] = ContextVar("request", default=None)


def current_request() -> Request:
    """Returns the request that the running task answers; an empty one outside of requests."""
    return _CURRENT.get() or Request()


def begin_request(request: Request) -> None:
    """Makes `request` the one that the running task answers."""
    _CURRENT.set(request)
