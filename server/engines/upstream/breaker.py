"""A circuit breaker, and a budget for retries."""

import enum
import time
from collections.abc import Callable


class BreakerState(enum.Enum):
    """The state of a circuit breaker. A Prometheus metric of the gateway reports the number."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Stops requests to an upstream after failures in a row, then tries it with one request."""

    def __init__(
        self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates a closed breaker.

        Args:
            failures: The breaker opens after this many failures in a row.
            seconds: An open breaker lets one request try the upstream after this many seconds.
            clock: Returns the time in seconds.
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
        """Records that a request is sent."""
        if self.state is BreakerState.HALF_OPEN:
            self._probing = True

    def succeeded(self) -> None:
        """Records an answer, whatever its content."""
        self._failures = 0
        self._opened = None
        self._probing = False

    def failed(self) -> None:
        """Records a request without an answer."""
        self._failures += 1
        self._probing = False
        if self._opened is not None or self._failures >= self._failures_allowed:
            self._opened = self._clock()

    def abandoned(self) -> None:
        """Records that the caller stopped waiting for the answer."""
        self._probing = False


class RetryBudget:
    """Limits retries to a fraction of all requests, plus a few.

    Without this limit a failing model server would get several times the load. gRPC's
    `retryThrottling` uses the same idea.
    """

    def __init__(self, ratio: float, most: float = 100.0, least: float = 10.0) -> None:
        """Creates the budget.

        Args:
            ratio: Each request adds this fraction of a retry to the budget.
            most: Largest number of unused retries in the budget.
            least: Number of retries in the budget at the start.
        """
        self._ratio = ratio
        self._most = most
        self._tokens = least

    def earn(self) -> None:
        """Counts one request."""
        self._tokens = min(self._most, self._tokens + self._ratio)

    def spend(self) -> bool:
        """Takes one retry out of the budget; returns False if it is empty."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
