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


class Shares:
    """Limits an amount in use at once, in all and per name, such as a client's or a model's.

    Used from one event loop.
    """

    def __init__(
        self,
        each: int,
        whose: str,
        in_all: int | None = None,
        what: str = "requests",
        use: str = "are answered at once",
    ) -> None:
        """Creates the limit.

        Args:
            each: Largest amount per name.
            whose: The names' description in the error message, such as `of one client`.
            in_all: Largest amount in all; None for no limit.
            what: The description of the amount in the error message.
            use: The description of its use there.
        """
        self._each, self._in_all = each, in_all
        self._texts = f"{what} {whose} {use}", f"{what} {use}"
        self._used = 0
        self._by_name: dict[str, int] = {}

    def take(self, name: str, count: int = 1) -> None:
        """Takes a part of the amount. `give` returns it.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if so much is not free.
        """
        used = self._by_name.get(name, 0) + count
        if used > self._each:
            raise _exhausted(self._each, self._texts[0])
        if self._in_all is not None and self._used + count > self._in_all:
            raise _exhausted(self._in_all, self._texts[1])
        self._used += count
        self._by_name[name] = used

    def give(self, name: str, count: int = 1) -> None:
        """Returns a part of the amount."""
        self._used -= count
        left = self._by_name[name] - count if count else self._by_name.get(name, 0)
        if left:
            self._by_name[name] = left
        else:
            self._by_name.pop(name, None)


def _exhausted(most: float, what: str, retry_after: float = 1.0) -> ServingError:
    return ServingError(
        Code.RESOURCE_EXHAUSTED,
        f"At most {most:.15g} {what}. Try again later.",
        retry_after=retry_after,
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
            what = f"requests per second are allowed {self._whose}"
            raise _exhausted(self._rate, what, max(1.0, wait))


class Throttle:
    """The limits of one process, over all transports."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Creates the limits.

        Args:
            settings: The limits' sizes.
            clock: Returns the time in seconds.
        """
        #: Running requests, in all and of each client. A request runs once its body has arrived.
        self.places = Shares(settings.client_in_flight, "of one client", settings.max_in_flight)
        self.client_rate = Rate(settings.rate_per_second, "from one client", clock)
        #: Bytes of the bodies in memory, after decompression. A client may hold half of them.
        most = _BODIES * settings.max_decompressed_bytes
        self.bytes = Shares(
            most // 2, "of one client", most, "bytes of requests", "may be in memory"
        )
        #: Running requests of each model.
        self.model_places = Shares(settings.model_in_flight, "to one model")
        self.model_rate = Rate(settings.model_rate_per_second, "to one model", clock)
