"""How many requests are taken: at once, and a second from one client."""

import time
from collections import OrderedDict
from collections.abc import Callable

from server.errors import Code, ServingError

_REMEMBERED_CLIENTS = 10_000
# A client may send this many seconds' worth of requests in one go.
_BURST_SECONDS = 2.0


class Throttle:
    """Bounds on requests in flight and on requests a second. Used from one event loop."""

    def __init__(
        self, max_in_flight: int, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Makes the throttle.

        Args:
            max_in_flight: Requests answered at once.
            rate: Requests a second from one client; 0 for no bound.
            clock: Tells the time in seconds.
        """
        self._max_in_flight = max_in_flight
        self._rate = rate
        self._burst = max(1.0, rate * _BURST_SECONDS)
        self._clock = clock
        self._in_flight = 0
        # Tokens left, and when they were counted, by client; the longest unseen first.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def enter(self) -> None:
        """Takes one of the places for requests in flight; `leave` gives it back.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if all are taken.
        """
        if self._in_flight >= self._max_in_flight:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._max_in_flight} requests are answered at once. Try again later.",
                retry_after=1.0,
            )
        self._in_flight += 1

    def leave(self) -> None:
        """Gives a place back."""
        self._in_flight -= 1

    def count(self, client: str) -> None:
        """Counts one request of a client.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if it sends more than its rate.
        """
        if not self._rate:
            return
        now = self._clock()
        tokens, then = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        refused = tokens < 1
        self._buckets[client] = (tokens if refused else tokens - 1, now)
        if len(self._buckets) > _REMEMBERED_CLIENTS:
            self._buckets.popitem(last=False)
        if refused:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._rate:g} requests a second are taken from one client. "
                "Try again later.",
                retry_after=max(1.0, (1 - tokens) / self._rate),
            )
