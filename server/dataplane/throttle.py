"""How many requests are taken: at once, and a second; from all, from one client, to one model."""

import time
from collections import OrderedDict
from collections.abc import Callable

from server.errors import Code, ServingError
from server.settings import Settings

_REMEMBERED = 10_000
# Bodies of the largest size that are held at once: a few bytes of gzip become one.
_BODIES = 8
# This many seconds' worth of requests may come in one go.
_BURST_SECONDS = 2.0


class Places:
    """A bound on the requests under way, for each name by itself. Used from one event loop."""

    def __init__(self, most: int, what: str = "requests") -> None:
        """Makes the places, all free.

        Args:
            most: Requests of one name answered at once.
            what: What they are, for the refusal.
        """
        self._most = most
        self._what = what
        self._taken: dict[str, int] = {}

    def enter(self, name: str = "") -> None:
        """Takes a place; `leave` gives it back.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if all are taken.
        """
        taken = self._taken.get(name, 0)
        if taken >= self._most:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._most} {self._what} are answered at once. Try again later.",
                retry_after=1.0,
            )
        self._taken[name] = taken + 1

    def leave(self, name: str = "") -> None:
        """Gives a place back."""
        left = self._taken[name] - 1
        if left:
            self._taken[name] = left
        else:
            del self._taken[name]


class Held:
    """A bound on the bytes of all bodies that are held at once. Used from one event loop."""

    def __init__(self, most: int) -> None:
        """Makes the bound; `most` is in bytes."""
        self._most = most
        self._held = 0

    def take(self, count: int) -> None:
        """Counts bytes that arrived; `give` takes them off.

        Raises:
            ServingError: RESOURCE_EXHAUSTED beyond the bound.
        """
        if self._held + count > self._most:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._most} bytes of requests are held at once. Try again later.",
                retry_after=1.0,
            )
        self._held += count

    def give(self, count: int) -> None:
        """Takes bytes off that are held no longer."""
        self._held -= count


class Rate:
    """A bound on requests a second, for each name by itself. Used from one event loop."""

    def __init__(
        self, rate: float, whose: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Makes the bound.

        Args:
            rate: Requests a second of one name; 0 for no bound.
            whose: What the names are, for the refusal: `from one client`.
            clock: Tells the time in seconds.
        """
        self._rate = rate
        self._burst = max(1.0, rate * _BURST_SECONDS)
        self._whose = whose
        self._clock = clock
        # Tokens left, and when they were counted, by name; the longest unseen first.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, name: str) -> None:
        """Counts one request.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if there are more than the rate.
        """
        if not self._rate:
            return
        now = self._clock()
        tokens, then = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        refused = tokens < 1
        self._buckets[name] = (tokens if refused else tokens - 1, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if refused:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._rate:g} requests a second are taken {self._whose}. "
                "Try again later.",
                retry_after=max(1.0, (1 - tokens) / self._rate),
            )


class Throttle:
    """Bounds on what one process takes, whatever transport it comes through."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Makes the bounds.

        Args:
            settings: How much is taken.
            clock: Tells the time in seconds.
        """
        #: Places of the process.
        self.places = Places(settings.max_in_flight)
        #: Places of each client, from the head of a request to its answer.
        self.client_places = Places(settings.client_in_flight, "requests of one client")
        self.client_rate = Rate(settings.rate_per_second, "from one client", clock)
        #: Bytes of the bodies, after decompression.
        self.bytes = Held(_BODIES * settings.max_decompressed_bytes)
        #: Places at each model.
        self.model_places = Places(settings.model_in_flight, "requests to one model")
        self.model_rate = Rate(settings.model_rate_per_second, "to one model", clock)
