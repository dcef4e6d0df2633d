"""Prometheus metrics, in their own registry so that several applications can coexist."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from ..request import Request

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUEUE_SECONDS = (0.00005, 0.00025, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5)
_ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)


class Metrics:
    """The gateway's metrics."""

    def __init__(self) -> None:
        """Creates the metrics, all at zero."""
        to = self._registry = CollectorRegistry()
        counter = functools.partial(Counter, registry=to)
        gauge = functools.partial(Gauge, registry=to)
        histogram = functools.partial(Histogram, registry=to)
        # `labels` takes longer than all else that a metric does, so its results are cached.
        by = functools.cache
        ProcessCollector(registry=to)
        #: Running requests.
        self.in_flight = 0
        running = gauge("gateway_in_flight", "Requests being answered now")
        running.set_function(lambda: self.in_flight)
        requests = counter("gateway_requests", "Requests answered", ("model", "verb", "code"))
        self._requests = by(requests.labels)
        seconds = histogram(
            "gateway_request_seconds",
            "Time from the request's head to the answer's end",
            ("model", "verb"),
            buckets=_SECONDS,
        )
        self._seconds = by(seconds.labels)
        self._queued = histogram(
            "gateway_queue_seconds",
            "Time that requests waited for a thread of the engine, or for a model server",
            buckets=_QUEUE_SECONDS,
        )
        rows = histogram("gateway_rows", "Rows, or ids, of a request", ("verb",), buckets=_ROWS)
        self._rows = by(rows.labels)
        body_bytes = counter("gateway_body_bytes", "Bytes of bodies", ("direction",))
        self._received, self._sent = body_bytes.labels("in"), body_bytes.labels("out")
        table = ("model", "table")
        self._ids = by(counter("gateway_lookup_ids", "Ids looked up", table).labels)
        self._unknown_ids = by(
            counter(
                "gateway_lookup_unknown_ids", "Ids looked up that the table does not hold", table
            ).labels
        )
        self.batch_rows = histogram("gateway_batch_rows", "Rows of a micro-batch", buckets=_ROWS)
        self.queue_waiting = gauge("gateway_queue_waiting", "Requests that wait for the engine")
        self._version = gauge("gateway_model_version", "Newest version that serves", ("model",))
        self._age = gauge(
            "gateway_model_version_age_seconds",
            "Time since the newest version that serves was published",
            ("model",),
        )
        self._table_rows = gauge("gateway_table_rows", "Rows of an embedding table", table)
        self._table_bytes = gauge("gateway_table_bytes", "Bytes of an embedding table", table)
        told = (
            "1 for what the check of an embedding table's files found: unchecked, intact, damaged"
        )
        self._table_health = gauge("gateway_table_health", told, (*table, "health"))
        upstream_seconds = histogram(
            "gateway_upstream_seconds",
            "Time of calls to a model server",
            ("upstream", "code"),
            buckets=_SECONDS,
        )
        self.upstream_seconds = by(upstream_seconds.labels)
        self.upstream_in_flight = gauge(
            "gateway_upstream_in_flight", "Calls a model server runs", ("upstream",)
        )
        self.upstream_in_service = gauge(
            "gateway_upstream_in_service",
            "1 for a model server that takes requests; 0 if it is drained or does not answer",
            ("upstream",),
        )
        self.retries = counter(
            "gateway_retries", "Requests sent once more, to another model server"
        )

    def observe(self, request: Request, model: str | None, status: int, seconds: float) -> None:
        """Counts one request.

        `model` is None if the model is unknown, because the metric keeps each name forever.
        `status` is the HTTP status, and `seconds` the request's duration.
        """
        verb, name = request.verb, "unknown" if model is None else model
        self._requests(name, verb, status).inc()
        self._seconds(name, verb).observe(seconds)
        if not request.model:
            return
        if "queue" in request.stages:
            self._queued.observe(request.stages["queue"])
        if request.rows is not None:
            self._rows(verb).observe(request.rows)
        self._received.inc(request.received_bytes)
        self._sent.inc(request.sent_bytes)
        if model is not None:
            for table, (ids, unknown) in request.lookups.items():
                self._ids(model, table).inc(ids)
                self._unknown_ids(model, table).inc(unknown)

    def set_models(self, models: Iterable[Mapping[str, Any]]) -> None:
        """Sets the metrics of models and their tables, which are as `Snapshots.models` has them."""
        for gauge in (
            self._version, self._age, self._table_rows, self._table_bytes, self._table_health
        ):  # fmt: skip
            gauge.clear()
        for model in models:
            name, serving = model["name"], model["serving"]
            if serving is not None:
                self._version.labels(name).set(serving)
                ages = {each["version"]: each["age_seconds"] for each in model["versions"]}
                self._age.labels(name).set(ages[str(serving)] or 0.0)
            for table in model["tables"]:
                labels = name, str(table.get("table"))
                rows, size, health = map(table.get, ("rows", "bytes", "health"))
                if isinstance(rows, int | float):
                    self._table_rows.labels(*labels).set(rows)
                    if isinstance(size, int | float):
                        self._table_bytes.labels(*labels).set(size)
                    if health is not None:
                        self._table_health.labels(*labels, health).set(1)

    def exposition(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
