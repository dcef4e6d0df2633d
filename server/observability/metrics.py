"""Prometheus metrics, in a registry of their own so that several applications can coexist."""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The gateway's metrics."""

    def __init__(self) -> None:
        """Makes the metrics, all at zero."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.in_flight = Gauge(
            "gateway_in_flight", "Requests being answered now", registry=self._registry
        )
        self._requests = Counter(
            "gateway_requests",
            "Requests answered",
            ("model", "verb", "code"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "gateway_request_seconds",
            "Time from the request's head to the answer's end",
            ("model", "verb"),
            buckets=_SECONDS,
            registry=self._registry,
        )

    def observe(self, model: str, verb: str, code: int, seconds: float) -> None:
        """Counts one request.

        Args:
            model: The model's name; only known ones, as each value is kept forever.
            verb: What was asked for.
            code: The HTTP status.
            seconds: How long it took.
        """
        self._requests.labels(model, verb, str(code)).inc()
        self._seconds.labels(model, verb).observe(seconds)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
