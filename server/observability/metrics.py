"""Prometheus metrics, in their own registry so that several applications can coexist."""

from collections.abc import Iterable, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from ..request import Request
from .counter import LoopCounter
from .histogram import LoopHistogram

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STAGE_SECONDS = (0.00005, 0.00025, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5)
_IN, _OUT = ("in",), ("out",)
_ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)


class Metrics:
    """The gateway's metrics."""

    def __init__(self) -> None:
        """Creates the metrics, all at zero."""
        # Long: a list of metrics, one after the other.
        to = self._registry = CollectorRegistry()
        ProcessCollector(registry=to)
        #: Running requests.
        self.in_flight = 0
        Gauge("gateway_in_flight", "Requests being answered now", registry=to).set_function(
            lambda: self.in_flight
        )
        self._requests = LoopCounter(
            "gateway_requests", "Requests answered", ("model", "verb", "code"), to
        )
        self._seconds = LoopHistogram(
            "gateway_request_seconds",
            "Time from the request's head to the answer's end",
            ("model", "verb"),
            _SECONDS,
            to,
        )
        self._stages = LoopHistogram(
            "gateway_stage_seconds", "Time of requests by stage", ("stage",), _STAGE_SECONDS, to
        )
        self._queued = LoopHistogram(
            "gateway_queue_seconds",
            "Time that requests waited for a thread of the engine, or for a model server",
            (),
            _STAGE_SECONDS,
            to,
        )
        self._rows = LoopHistogram(
            "gateway_rows", "Rows, or ids, of a request", ("verb",), _ROWS, to
        )
        self._bytes = LoopCounter("gateway_body_bytes", "Bytes of bodies", ("direction",), to)
        self._ids = LoopCounter("gateway_lookup_ids", "Ids looked up", ("model", "table"), to)
        self._unknown_ids = LoopCounter(
            "gateway_lookup_unknown_ids",
            "Ids looked up that the table does not hold",
            ("model", "table"),
            to,
        )
        self.batch_rows = Histogram(
            "gateway_batch_rows", "Rows of a micro-batch", buckets=_ROWS, registry=to
        )
        self.queue_waiting = Gauge(
            "gateway_queue_waiting", "Requests that wait for the engine", registry=to
        )
        self._version = Gauge(
            "gateway_model_version", "Newest version that serves", ("model",), registry=to
        )
        self._age = Gauge(
            "gateway_model_version_age_seconds",
            "Time since the newest version that serves was published",
            ("model",),
            registry=to,
        )
        self._table_rows = Gauge(
            "gateway_table_rows",
            "Rows of an embedding table",
            ("model", "table"),
            registry=to,
        )
        self._table_bytes = Gauge(
            "gateway_table_bytes",
            "Bytes of an embedding table",
            ("model", "table"),
            registry=to,
        )
        self._table_health = Gauge(
            "gateway_table_health",
            "1 for what the check of an embedding table's files found: unchecked, intact, damaged",
            ("model", "table", "health"),
            registry=to,
        )
        self.upstream_seconds = LoopHistogram(
            "gateway_upstream_seconds",
            "Time of calls to a model server",
            ("upstream", "code"),
            _SECONDS,
            to,
        )
        self.upstream_in_flight = Gauge(
            "gateway_upstream_in_flight",
            "Calls a model server runs",
            ("upstream",),
            registry=to,
        )
        self.upstream_in_service = Gauge(
            "gateway_upstream_in_service",
            "1 for a model server that takes requests; 0 if it is drained or does not answer",
            ("upstream",),
            registry=to,
        )
        self.retries = Counter(
            "gateway_retries", "Requests sent once more, to another model server", registry=to
        )

    def observe(self, request: Request, model: str | None, status: int, seconds: float) -> None:
        """Counts one request.

        Args:
            request: The request.
            model: The model's name; None if it is unknown, because the metric keeps each name
                forever.
            status: The HTTP status.
            seconds: The request's duration.
        """
        verb, name = request.verb, "unknown" if model is None else model
        self._requests.counts[name, verb, status] += 1
        self._seconds.observe((name, verb), seconds)
        if not request.model:
            return
        for stage, spent in request.stages.items():
            self._stages.observe((stage,), spent)
            if stage == "queue":
                self._queued.observe((), spent)
        if request.rows is not None:
            self._rows.observe((verb,), request.rows)
        self._bytes.counts[_IN] += request.received_bytes
        self._bytes.counts[_OUT] += request.sent_bytes
        if model is not None:
            for table, (ids, unknown) in request.lookups.items():
                self._ids.counts[model, table] += ids
                self._unknown_ids.counts[model, table] += unknown

    def set_models(self, versions: Mapping[str, tuple[int, float]]) -> None:
        """Sets the newest version and its age in seconds for each model that serves."""
        self._version.clear()
        self._age.clear()
        for model, (version, age) in versions.items():
            self._version.labels(model).set(version)
            self._age.labels(model).set(age)

    def set_tables(
        self, tables: Iterable[tuple[str, str, float, float | None, str | None]]
    ) -> None:
        """Sets the metrics of tables. Each entry: model, table, rows; bytes and health or None."""
        self._table_rows.clear()
        self._table_bytes.clear()
        self._table_health.clear()
        for model, table, rows, size, health in tables:
            self._table_rows.labels(model, table).set(rows)
            if size is not None:
                self._table_bytes.labels(model, table).set(size)
            if health is not None:
                self._table_health.labels(model, table, health).set(1)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
