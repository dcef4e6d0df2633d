"""The outermost layer: a request id, metrics, one log line a failure, and no traceback outside."""

import logging
import random
import re
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.edge.http.raw_paths import raw_path
from server.edge.http.request_info import RequestInfo, attach
from server.edge.http.responses import error_response
from server.observability.live import LiveView
from server.observability.logs import LOG
from server.observability.metrics import Metrics

_ALLOWED_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")


class RequestContext:
    """Gives every request its record, and accounts for it at the end."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        live: LiveView,
        known_models: Callable[[], frozenset[str]],
        log_sample: float = 0.0,
    ) -> None:
        """Wraps an application.

        Args:
            app: The application.
            metrics: Where requests are counted.
            live: Where they are counted for the page.
            known_models: Returns the names that may become a label of a metric.
            log_sample: Part of the answered requests that is logged.
        """
        self._app = app
        self._metrics = metrics
        self._live = live
        self._known_models = known_models
        self._log_sample = log_sample

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        info = RequestInfo(_request_id(scope))
        attach(scope, info)
        id_header = (b"x-request-id", info.request_id.encode())
        begun = time.perf_counter()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                info.status = message["status"]
                message["headers"] = [*message.get("headers", ()), id_header]
            await send(message)

        self._metrics.in_flight += 1
        try:
            await self._app(scope, receive, send_counted)
        except Exception:
            # The client learns the id, the log everything else.
            LOG.exception("request failed", extra={"request_id": info.request_id})
            if not info.status:
                message = f"Internal error. Request id: {info.request_id}"
                await error_response(500, message)(scope, receive, send_counted)
        finally:
            self._metrics.in_flight -= 1
            self._account(scope, info, time.perf_counter() - begun)

    def _account(self, scope: Scope, info: RequestInfo, seconds: float) -> None:
        # No status means that the client went away and the request was cancelled.
        status = info.status or 499
        # Any name may be asked for, and every label value is kept: only known ones count.
        known = not info.model or info.model in self._known_models()
        model = info.model if known else "unknown"
        self._metrics.observe(model, info.verb, status, seconds)
        if info.model:
            call = info.call
            self._metrics.observe_call(
                info.verb, call.stages, call.rows, info.request_bytes, info.response_bytes
            )
            if call.lookups and known:
                self._metrics.observe_lookups(model, call.lookups)
            self._live.observe(status, seconds, model, call.lookups, call.sample)
        if status >= 400 or (self._log_sample and random.random() < self._log_sample):
            self._log(scope, info, status, seconds)

    def _log(self, scope: Scope, info: RequestInfo, status: int, seconds: float) -> None:
        if status < 400:
            message = "request answered"
        elif status == 499:
            message = "client gone"
        else:
            message = "request not answered" if status >= 500 else "request refused"
        LOG.log(
            # A probe that finds the gateway not ready is not a failure.
            logging.ERROR if status >= 500 and info.model else logging.INFO,
            message,
            extra={
                "request_id": info.request_id,
                "method": scope["method"],
                "path": raw_path(scope).decode("latin-1")[:256],
                "status": status,
                "milliseconds": round(seconds * 1000, 3),
                "client_name": info.client,
                "stages_ms": {k: round(v * 1000, 3) for k, v in info.call.stages.items()},
            },
        )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ALLOWED_ID.fullmatch(value):
            return str(value.decode())
    # Not a secret, so no need for the system's randomness.
    return f"{random.getrandbits(128):032x}"
