"""What accompanies a request to wherever it is answered: its deadline, and where time went."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from contextvars import ContextVar

from server.errors import Code, ServingError


@dataclasses.dataclass
class Call:
    """One request on its way through handlers and engine.

    Attributes:
        deadline: When the answer is due, on the clock of `time.monotonic`; None for never.
        metadata: Headers that go on to a model server, lower-case names.
        stages: Seconds spent by stage: `read`, `decode`, `queue`, `run`, `encode`.
        rows: Rows of the request, if it has any.
        lookups: By table, how many ids were looked up and how many of them are unknown.
        sample: By table, some of the ids that were found.
    """

    deadline: float | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    stages: dict[str, float] = dataclasses.field(default_factory=dict)
    rows: int | None = None
    lookups: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    sample: dict[str, list[int | str]] = dataclasses.field(default_factory=dict)

    def remaining(self) -> float | None:
        """Returns the seconds left; None if there is no deadline.

        Raises:
            ServingError: DEADLINE_EXCEEDED if none are left.
        """
        if self.deadline is None:
            return None
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ServingError(Code.DEADLINE_EXCEEDED, "Deadline exceeded")
        return left

    def spent(self, stage: str, seconds: float) -> None:
        """Adds to the time of a stage."""
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time of the block to a stage."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.spent(name, time.perf_counter() - begun)


_CURRENT: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call:
    """Returns the call that the running task answers; an empty one outside of requests."""
    return _CURRENT.get() or Call()


def begin_call(call: Call) -> None:
    """Makes `call` the one that the running task answers."""
    _CURRENT.set(call)
