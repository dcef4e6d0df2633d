"""Chooses the model server for a request, and handles failures."""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence

from ...errors import Code, ServingError
from ...observability.metrics import Metrics
from ...request import current_request
from .breaker import BreakerState, RetryBudget
from .endpoint import Endpoint

_BACKOFF_SECONDS = 0.01
# Requests that one endpoint runs at once.
_IN_FLIGHT = 64
# Requests that may wait for an endpoint.
_MAX_WAITING = 256
# Retries per request.
_RETRIES = 2
# Allowed retries, as a fraction of all requests.
_RETRY_BUDGET = 0.1


class UpstreamPool:
    """The endpoints. Each request goes to the least busy one."""

    def __init__(self, endpoints: Sequence[Endpoint], metrics: Metrics | None = None) -> None:
        """Creates the pool. The owner of the endpoints opens and closes them."""
        self.endpoints = tuple(endpoints)
        self._metrics = metrics
        self._budget = RetryBudget(_RETRY_BUDGET)
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def call(self, method: str, request: bytes, eligible: Collection[str]) -> bytes:
        """Sends a request and returns the answer; retries if the endpoint cannot be reached.

        A retry goes to another endpoint. If there is none, it goes to the same one, perhaps on a
        new connection. All attempts share the deadline of the current request.

        Args:
            method: Name of the method.
            request: The serialized message. A retry may send it twice, which does no harm, because
                inference changes nothing on the server.
            eligible: Names of the endpoints that can answer.

        Raises:
            ServingError: UNAVAILABLE if no endpoint accepts it, RESOURCE_EXHAUSTED if too many
                requests wait, DEADLINE_EXCEEDED, or the endpoint's own error.
        """
        self._budget.earn()
        tried: set[str] = set()
        for attempt in range(_RETRIES + 1):
            try:
                return await self._attempt(method, request, eligible, tried)
            except ServingError as error:
                again = error.code is Code.UNAVAILABLE and attempt < _RETRIES
                if not again or not self._usable(eligible, ()) or not self.may_retry():
                    raise
            await asyncio.sleep(_BACKOFF_SECONDS * 2**attempt * random.random())
            current_request().remaining()
        raise AssertionError("the last attempt returns or raises")

    def may_retry(self) -> bool:
        """Takes a retry out of the budget; returns False if it is empty."""
        if not self._budget.spend():
            return False
        if self._metrics is not None:
            self._metrics.retries.inc()
        return True

    async def _attempt(
        self, method: str, request: bytes, eligible: Collection[str], tried: set[str]
    ) -> bytes:
        call = current_request()
        begun = time.perf_counter()
        async with self._endpoint(eligible, tried) as endpoint:
            call.spent("queue", time.perf_counter() - begun)
            tried.add(endpoint.name)
            return await self._send(endpoint, method, request)

    async def _send(self, endpoint: Endpoint, method: str, request: bytes) -> bytes:
        call = current_request()
        begun = time.perf_counter()
        code = Code.CANCELLED
        endpoint.breaker.sent()
        try:
            answer = await endpoint.call(method, request, call.remaining(), call.metadata)
            code = Code.OK
            return answer
        except ServingError as error:
            code = error.code
            raise
        finally:
            seconds = time.perf_counter() - begun
            call.spent("run", seconds)
            if code is Code.UNAVAILABLE:
                endpoint.breaker.failed()
            elif code in (Code.CANCELLED, Code.DEADLINE_EXCEEDED):
                endpoint.breaker.abandoned()
            else:
                endpoint.breaker.succeeded()
            if self._metrics is not None:
                self._metrics.upstream_seconds.observe((endpoint.name, code.value), seconds)

    @contextlib.asynccontextmanager
    async def _endpoint(
        self, eligible: Collection[str], tried: set[str]
    ) -> AsyncIterator[Endpoint]:
        endpoint = self._choose(eligible, tried)
        while endpoint is None:
            await self._wait()
            endpoint = self._choose(eligible, tried)
        endpoint.in_flight += 1
        try:
            yield endpoint
        finally:
            endpoint.in_flight -= 1
            self._wake()

    def _choose(self, eligible: Collection[str], tried: set[str]) -> Endpoint | None:
        """Returns the least busy endpoint; None if all usable ones are full."""
        usable = self._usable(eligible, tried) or self._usable(eligible, set())
        if not usable:
            raise ServingError(
                Code.UNAVAILABLE, "No model server takes requests now", retry_after=1.0
            )
        random.shuffle(usable)
        best = min(usable, key=lambda endpoint: endpoint.in_flight)
        return best if best.in_flight < _IN_FLIGHT else None

    def _usable(self, eligible: Collection[str], tried: Collection[str]) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in self.endpoints
            if endpoint.name in eligible
            and endpoint.name not in tried
            and not endpoint.drained
            and endpoint.breaker.allows()
        ]

    async def _wait(self) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"Too many requests wait for a model server: {len(self._waiting)}. "
                "Try again later.",
                retry_after=1.0,
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # this waiter was already woken: wake another instead
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def publish(self) -> None:
        """Sets the metrics of the endpoints' states."""
        if self._metrics is None:
            return
        for endpoint in self.endpoints:
            self._metrics.upstream_in_flight.labels(endpoint.name).set(endpoint.in_flight)
            self._metrics.breaker_state.labels(endpoint.name).set(endpoint.breaker.state.value)

    def states(self) -> dict[str, str]:
        """Returns the state of each endpoint: `drained`, or the state of its breaker."""
        return {
            endpoint.name: "drained"
            if endpoint.drained
            else {
                BreakerState.CLOSED: "in service",
                BreakerState.HALF_OPEN: "on trial",
                BreakerState.OPEN: "left alone",
            }[endpoint.breaker.state]
            for endpoint in self.endpoints
        }
