"""The last minutes of traffic in memory, for the page: one point per second."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

_SECONDS = 300
_LATENCIES_KEPT = 512


class LiveView:
    """Requests per second, their latencies, and the ids that they looked up."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Creates an empty view."""
        self._clock = clock
        # The counts of each second in which there were requests, and the latencies in it.
        self._seconds: deque[tuple[dict[str, int], list[float]]] = deque(maxlen=_SECONDS)

    def observe(self, status: int, seconds: float, lookups: Mapping[str, tuple[int, int]]) -> None:
        """Counts one request to a model; `lookups` as in `Request`."""
        now = int(self._clock())
        if not self._seconds or self._seconds[-1][0]["at"] != now:
            counts = {"at": now, "requests": 0, "failures": 0, "ids": 0, "unknown": 0}
            self._seconds.append((counts, []))
        counts, latencies = self._seconds[-1]
        counts["requests"] += 1
        counts["failures"] += status >= 400
        if len(latencies) < _LATENCIES_KEPT:
            latencies.append(seconds)
        for ids, unknown in lookups.values():
            counts["ids"] += ids
            counts["unknown"] += unknown

    def points(self) -> list[dict[str, Any]]:
        """Returns the seconds in which there were requests, oldest first."""
        points = []
        for counts, latencies in self._seconds:
            ordered, last = sorted(latencies), len(latencies) - 1
            middle, most = ordered[last // 2], ordered[round(last * 0.99)]
            points.append({**counts, "p50_ms": middle * 1000, "p99_ms": most * 1000})
        return points
