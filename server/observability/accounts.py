"""Reports each request: metrics, spans, the page's charts, one log line per failure."""

import itertools
import logging
import random
from collections.abc import Callable
from types import ModuleType

from ..request import Request
from ..settings import Settings
from .live import LiveView
from .logs import LOG
from .metrics import Metrics

# The ids of requests are no secrets, so they need no secure randomness.
_PROCESS = f"{random.getrandbits(64):016x}"
_NUMBERS = itertools.count(1)


class Accounts:
    """Counts and logs requests of all transports."""

    def __init__(
        self,
        metrics: Metrics,
        known_models: Callable[[], frozenset[str]],
        settings: Settings | None = None,
    ) -> None:
        """Creates the accounts.

        `known_models` returns the model names that may become a metric's label. The settings say
        whether to count for the page, whether requests have spans, and which fraction of the
        answered requests to log. Without settings the accounts do none of this.
        """
        self._metrics = metrics
        self._known_models = known_models
        # The names that were known once. Requests without a model have an empty name.
        self._named = {""}
        self.live = LiveView() if settings and settings.ui else None
        self._log_sample = settings.log_sample if settings else 0.0
        #: Describes requests in their spans; None if they have no spans.
        self.tracing: ModuleType | None = None
        if settings and settings.tracing:
            from . import tracing  # loads OpenTelemetry

            self.tracing = tracing

    def begin(self, request: Request) -> None:
        """Counts a request that has started. The caller must call `end` for it later."""
        self._metrics.in_flight += 1
        if self.tracing is not None:
            self.tracing.pass_on(request)

    def end(self, request: Request, seconds: float) -> None:
        """Reports a request that took this many seconds."""
        self._metrics.in_flight -= 1
        # The status is 0 if the client disconnected and the request was cancelled.
        status = request.status or 499
        # A client may send any name, and a metric keeps every label forever: use only known names.
        model: str | None = request.model
        if model not in self._named:
            if model in self._known_models():
                self._named.add(request.model)
            else:
                model = None
        self._metrics.observe(request, model, status, seconds)
        if self.live is not None and request.model:
            self.live.observe(status, seconds, request.lookups)
        if status >= 400 or (self._log_sample and random.random() < self._log_sample):
            _log(request, status, seconds)


def new_id() -> str:
    """Returns an id for a request: the process's random number, and a number in sequence."""
    return f"{_PROCESS}{next(_NUMBERS):016x}"


def _log(request: Request, status: int, seconds: float) -> None:
    if status < 400:
        message = "request answered"
    elif status == 499:
        message = "client gone"
    else:
        message = "request not answered" if status >= 500 else "request refused"
    LOG.log(
        # Only requests to a model log an error. A readiness probe also gets a 503 while the gateway
        # is not ready, but that is no failure.
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
