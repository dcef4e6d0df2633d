"""Limits on requests at once and per second: in total, per client, per model."""

import time
from collections import OrderedDict
from collections.abc import Callable

from ..errors import Code, ServingError
from ..settings import Settings

_REMEMBERED = 10_000
# All bodies in memory together may be as large as this many bodies of the largest size. A limit on
# received bytes would not be enough, because a small compressed body can decompress to this size.
_BODIES = 8
# A client may send this many seconds' worth of requests in one burst.
_BURST_SECONDS = 2.0
# Sums of times are rounded.
_ROUNDING = 1e-6


class Places:
    """Limits the number of running requests, in all and per name, such as a client's or a model's.

    A running request takes a place. Used from one event loop.
    """

    def __init__(self, most: int, whose: str, in_all: int | None = None) -> None:
        """Creates the limit.

        Args:
            most: Largest number of running requests per name.
            whose: The names' description in the error message, such as `of one client`.
            in_all: Largest number of running requests; None for no limit.
        """
        self._most = most
        self._whose = whose
        self._in_all = in_all
        self._running = 0
        self._taken: dict[str, int] = {}

    def enter(self, name: str) -> None:
        """Takes a place. `leave` returns it.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if no place is free.
        """
        taken = self._taken.get(name, 0)
        if taken >= self._most:
            raise _too_many(self._most, f"requests {self._whose}")
        if self._in_all is not None and self._running >= self._in_all:
            raise _too_many(self._in_all, "requests")
        self._running += 1
        self._taken[name] = taken + 1

    def leave(self, name: str) -> None:
        """Returns a place."""
        self._running -= 1
        left = self._taken[name] - 1
        if left:
            self._taken[name] = left
        else:
            del self._taken[name]


def _too_many(most: int, what: str) -> ServingError:
    return ServingError(
        Code.RESOURCE_EXHAUSTED,
        f"At most {most} {what} are answered at once. Try again later.",
        retry_after=1.0,
    )


class Held:
    """Limits the bytes of all bodies in memory, and each client's share of them.

    Used from one event loop.
    """

    def __init__(self, most: int) -> None:
        """Creates the limit; `most` is in bytes. A client may hold half of them."""
        self._most = most
        self._held = 0
        self._by_client: dict[str, int] = {}

    def take(self, client: str, count: int) -> None:
        """Adds bytes of a client that arrived. `give` subtracts them.

        Raises:
            ServingError: RESOURCE_EXHAUSTED beyond a limit.
        """
        held = self._by_client.get(client, 0) + count
        if held > self._most // 2:
            raise _beyond(self._most // 2, "requests of one client")
        if self._held + count > self._most:
            raise _beyond(self._most, "requests")
        self._held += count
        self._by_client[client] = held

    def give(self, client: str, count: int) -> None:
        """Subtracts bytes of a client that are no longer in memory."""
        if count:
            self._held -= count
            left = self._by_client[client] - count
            if left:
                self._by_client[client] = left
            else:
                del self._by_client[client]


def _beyond(most: int, whose: str) -> ServingError:
    return ServingError(
        Code.RESOURCE_EXHAUSTED,
        f"At most {most} bytes of {whose} may be in memory. Try again later.",
        retry_after=1.0,
    )


class Rate:
    """Limits requests per second for each name. Used from one event loop."""

    def __init__(
        self, rate: float, whose: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates the limit.

        Args:
            rate: Largest number of requests per second for each name; 0 for no limit.
            whose: The names' description in the error message, such as `from one client`.
            clock: Returns the time in seconds.
        """
        self._rate = rate
        self._gap = 1 / rate if rate else 0.0
        # The requests of a burst are due at intervals of the gap, and come at most this early.
        self._early = max(1.0, rate * _BURST_SECONDS) * self._gap
        self._whose = whose
        self._clock = clock
        # By name, the time when the next request is due. The name that was unused longest is first.
        self._due: OrderedDict[str, float] = OrderedDict()

    def count(self, name: str) -> None:
        """Counts one request.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if the rate is exceeded.
        """
        if not self._rate:
            return
        now = self._clock()
        due = self._due.get(name, now)
        if due < now:
            due = now
        wait = due + self._gap - now - self._early
        if wait <= _ROUNDING:
            due += self._gap
        self._due[name] = due
        self._due.move_to_end(name)
        if len(self._due) > _REMEMBERED:
            self._due.popitem(last=False)
        if wait > _ROUNDING:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._rate:g} requests per second are allowed {self._whose}. "
                "Try again later.",
                retry_after=max(1.0, wait),
            )


class Throttle:
    """The limits of one process, over all transports."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Creates the limits.

        Args:
            settings: The limits' sizes.
            clock: Returns the time in seconds.
        """
        #: Running requests, in all and of each client. A request runs once its body has arrived.
        self.places = Places(settings.client_in_flight, "of one client", settings.max_in_flight)
        self.client_rate = Rate(settings.rate_per_second, "from one client", clock)
        #: Bytes of the bodies in memory, after decompression.
        self.bytes = Held(_BODIES * settings.max_decompressed_bytes)
        #: Running requests of each model.
        self.model_places = Places(settings.model_in_flight, "to one model")
        self.model_rate = Rate(settings.model_rate_per_second, "to one model", clock)
