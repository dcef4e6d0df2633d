"""A circuit breaker, and a budget for requests that are sent again."""

import enum
import time
from collections.abc import Callable


class BreakerState(enum.Enum):
    """Whether an upstream is asked; the values are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Leaves an upstream alone after failures in a row, then tries it with one request."""

    def __init__(
        self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Makes a closed breaker.

        Args:
            failures: Failures in a row that open it.
            seconds: How long it stays open before one request may try.
            clock: Tells the time in seconds.
        """
        self._failures_allowed = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """The state now."""
        if self._opened is None:
            return BreakerState.CLOSED
        waited = self._clock() - self._opened >= self._seconds
        return BreakerState.HALF_OPEN if waited else BreakerState.OPEN

    def allows(self) -> bool:
        """Returns whether a request may be sent now."""
        state = self.state
        return state is BreakerState.CLOSED or (
            state is BreakerState.HALF_OPEN and not self._probing
        )

    def sent(self) -> None:
        """Notes that a request is sent."""
        if self.state is BreakerState.HALF_OPEN:
            self._probing = True

    def succeeded(self) -> None:
        """Notes an answer, whatever it says."""
        self._failures = 0
        self._opened = None
        self._probing = False

    def failed(self) -> None:
        """Notes that there was no answer."""
        self._failures += 1
        self._probing = False
        if self._opened is not None or self._failures >= self._failures_allowed:
            self._opened = self._clock()

    def abandoned(self) -> None:
        """Notes that nobody waited for the answer."""
        self._probing = False


class RetryBudget:
    """Allows retries as a part of all requests, and a few in any case.

    A model server in trouble would otherwise get several times the load. gRPC's own
    `retryThrottling` follows the same idea.
    """

    def __init__(self, ratio: float, most: float = 100.0, least: float = 10.0) -> None:
        """Makes the budget.

        Args:
            ratio: Retries earned by a request.
            most: Retries that can be saved up.
            least: Retries there are at the start.
        """
        self._ratio = ratio
        self._most = most
        self._tokens = least if ratio else 0.0

    def earn(self) -> None:
        """Counts one request."""
        self._tokens = min(self._most, self._tokens + self._ratio)

    def spend(self) -> bool:
        """Takes one retry out of the budget; returns whether there was one."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
