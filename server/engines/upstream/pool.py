"""Chooses the model server for a request. Too many requests wait, or are refused."""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Collection, Sequence

from ...errors import Code, ServingError, too_many, unavailable
from ...observability.metrics import Metrics
from ...request import current_request
from .endpoint import Endpoint

# Requests that one endpoint runs at once.
_IN_FLIGHT = 64
# Requests that may wait for an endpoint.
_MAX_WAITING = 256


class UpstreamPool:
    """The endpoints. Each request goes to the least busy one."""

    def __init__(self, endpoints: Sequence[Endpoint], metrics: Metrics | None = None) -> None:
        """Creates the pool. The owner of the endpoints opens and closes them."""
        self.endpoints = tuple(endpoints)
        self._metrics = metrics or Metrics()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def call(
        self,
        method: str,
        request: bytes,
        eligible: Collection[str],
        codes: set[Code] | None = None,
    ) -> bytes:
        """Sends a request and returns the answer.

        If the endpoint cannot be reached, sends the request once more, to another endpoint. Both
        attempts share the deadline of the current request.

        The request may be sent twice, which does no harm, because inference changes nothing on the
        server. `eligible` are the names of the endpoints that can answer. `codes` gets the code of
        each attempt.

        Raises:
            ServingError: UNAVAILABLE if no endpoint accepts it, RESOURCE_EXHAUSTED if too many
                requests wait, DEADLINE_EXCEEDED, or the endpoint's own error.
        """
        call = current_request()
        tried: list[str] = []
        while True:
            begun = time.perf_counter()
            while (endpoint := self._choose(eligible, tried)) is None:
                await self._wait()
            tried.append(endpoint.name)
            sent = time.perf_counter()
            call.stages["queue"] += sent - begun
            code = Code.CANCELLED
            endpoint.in_flight += 1
            try:
                answer = await endpoint.call(method, request, call.remaining(), call.metadata)
                code = Code.OK
                return answer
            except ServingError as error:
                code = error.code
                again = code is Code.UNAVAILABLE and len(tried) == 1
                if not again or not self._usable(eligible, tried):
                    raise
            finally:
                endpoint.in_flight -= 1
                if codes is not None:
                    codes.add(code)
                self._wake()
                seconds = time.perf_counter() - sent
                call.stages["run"] += seconds
                self._metrics.upstream_seconds(endpoint.name, code.value).observe(seconds)
            self._metrics.retries.inc()

    def _choose(self, eligible: Collection[str], tried: Collection[str]) -> Endpoint | None:
        """Returns the least busy endpoint; None if all usable ones are full."""
        usable = self._usable(eligible, tried)
        if not usable:
            raise unavailable("No model server takes requests now")
        random.shuffle(usable)
        best = min(usable, key=lambda endpoint: endpoint.in_flight)
        return best if best.in_flight < _IN_FLIGHT else None

    def _usable(self, eligible: Collection[str], tried: Collection[str]) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in self.endpoints
            if endpoint.name in eligible and endpoint.name not in tried and endpoint.in_service
        ]

    async def _wait(self) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            raise too_many("requests wait for a model server", len(self._waiting))
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

    def states(self) -> dict[str, str]:
        """Returns the state of each endpoint: `in service`, `left out` or `drained`."""
        return {endpoint.name: endpoint.state for endpoint in self.endpoints}
