"""Accounts for each request at its end: metrics, the page's charts, a log line per failure."""

import logging
import random
from collections.abc import Callable

from server.observability.live import LiveView
from server.observability.logs import LOG
from server.observability.metrics import Metrics
from server.request import Request


class Accounts:
    """Counts and logs requests, whatever transport brings them."""

    def __init__(
        self,
        metrics: Metrics,
        live: LiveView | None,
        known_models: Callable[[], frozenset[str]],
        log_sample: float = 0.0,
    ) -> None:
        """Makes the accounts.

        Args:
            metrics: Counts the requests.
            live: Counts them for the page; None without a page.
            known_models: Returns the names that may become a label of a metric.
            log_sample: Fraction of the answered requests that is logged.
        """
        self._metrics = metrics
        self.live = live
        self._known_models = known_models
        self._log_sample = log_sample

    def begin(self) -> None:
        """Counts a request that is being answered; `end` must follow."""
        self._metrics.in_flight += 1

    def end(self, request: Request, seconds: float) -> None:
        """Accounts for a request that took so many seconds."""
        self._metrics.in_flight -= 1
        # No status means that the client went away and the request was cancelled.
        status = request.status or 499
        # Any name may be asked for, and every label value is kept: only known ones count.
        known = not request.model or request.model in self._known_models()
        model = request.model if known else "unknown"
        self._metrics.observe(model, request.verb, status, seconds)
        if request.model:
            self._metrics.observe_call(
                request.verb,
                request.stages,
                request.rows,
                request.received_bytes,
                request.sent_bytes,
            )
            if request.lookups and known:
                self._metrics.observe_lookups(model, request.lookups)
            if self.live is not None:
                self.live.observe(status, seconds, model, request.lookups, request.sample)
        if status >= 400 or (self._log_sample and random.random() < self._log_sample):
            _log(request, status, seconds)


def new_id() -> str:
    """Returns an id for a request. It is no secret, so the system's randomness is not needed."""
    return f"{random.getrandbits(128):032x}"


def _log(request: Request, status: int, seconds: float) -> None:
    if status < 400:
        message = "request answered"
    elif status == 499:
        message = "client gone"
    else:
        message = "request not answered" if status >= 500 else "request refused"
    LOG.log(
        # A probe that finds the gateway not ready is not a failure.
        logging.ERROR if status >= 500 and request.model else logging.INFO,
        message,
        extra={
            "request_id": request.id,
            "method": request.method,
            "path": request.path.decode("latin-1")[:256],
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
            "client_name": request.client,
            "stages_ms": {k: round(v * 1000, 3) for k, v in request.stages.items()},
        },
    )
