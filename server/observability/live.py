"""The last minutes of traffic in memory, for the page: one point per second."""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_SECONDS = 300
_LATENCIES_KEPT = 512


@dataclasses.dataclass
class _Second:
    """The traffic of one second."""

    at: int
    requests: int = 0
    failures: int = 0
    ids: int = 0
    unknown: int = 0
    latencies: list[float] = dataclasses.field(default_factory=list)

    def point(self) -> dict[str, Any]:
        counts = {name: count for name, count in vars(self).items() if name != "latencies"}
        ordered = sorted(self.latencies)
        last = len(ordered) - 1
        return {
            **counts,
            "p50_ms": ordered[last // 2] * 1000 if ordered else None,
            "p99_ms": ordered[round(last * 0.99)] * 1000 if ordered else None,
        }


class LiveView:
    """Requests per second, their latencies, and the ids that they looked up."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Creates an empty view."""
        self._clock = clock
        self._seconds: deque[_Second] = deque(maxlen=_SECONDS)

    def observe(self, status: int, seconds: float, lookups: Mapping[str, tuple[int, int]]) -> None:
        """Counts one request to a model; `lookups` as in `Request`."""
        now = int(self._clock())
        if not self._seconds or self._seconds[-1].at != now:
            self._seconds.append(_Second(now))
        current = self._seconds[-1]
        current.requests += 1
        current.failures += status >= 400
        if len(current.latencies) < _LATENCIES_KEPT:
            current.latencies.append(seconds)
        for ids, unknown in lookups.values():
            current.ids += ids
            current.unknown += unknown

    def points(self) -> list[dict[str, Any]]:
        """Returns the seconds in which there were requests, oldest first."""
        return [second.point() for second in self._seconds]
