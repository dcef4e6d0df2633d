"""The last minutes of traffic in memory, for the page: one point per second."""

import dataclasses
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

_SECONDS = 300
_LATENCIES_KEPT = 512
_SAMPLE = 500
_TABLES = 256


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
    """Requests per second, and a sample of the ids that clients looked up."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Creates an empty view."""
        self._clock = clock
        self._seconds: deque[_Second] = deque(maxlen=_SECONDS)
        self._samples: OrderedDict[tuple[str, str], dict[int | str, None]] = OrderedDict()
        self._random = random.Random(0)

    def observe(
        self,
        status: int,
        seconds: float,
        model: str,
        lookups: Mapping[str, tuple[int, int]],
        sample: Mapping[str, list[int | str]],
    ) -> None:
        """Counts one request to a model."""
        now = int(self._clock())
        if not self._seconds or self._seconds[-1].at != now:
            self._seconds.append(_Second(now))
        current = self._seconds[-1]
        current.requests += 1
        current.failures += status >= 400
        if len(current.latencies) < _LATENCIES_KEPT:
            current.latencies.append(seconds)
        for table, (ids, unknown) in lookups.items():
            current.ids += ids
            current.unknown += unknown
            if sample.get(table):
                self._keep((model, table), sample[table])

    def points(self) -> list[dict[str, Any]]:
        """Returns the seconds in which there were requests, oldest first."""
        return [second.point() for second in self._seconds]

    def sample(self, model: str, table: str) -> list[int | str]:
        """Returns some ids that lookups found in a table."""
        return list(self._samples.get((model, table), ()))

    def _keep(self, key: tuple[str, str], ids: list[int | str]) -> None:
        kept = self._samples.setdefault(key, {})
        self._samples.move_to_end(key)
        for each in ids:
            if each not in kept and len(kept) >= _SAMPLE:
                # Replace a random id, not the oldest, so that the sample keeps ids of all times.
                del kept[self._random.choice(list(kept))]
            kept[each] = None
        if len(self._samples) > _TABLES:
            self._samples.popitem(last=False)
