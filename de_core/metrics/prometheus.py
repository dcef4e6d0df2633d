"""Serves the numbers of tables to Prometheus."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

from de_core.base.types import Target
from de_core.metrics.monitor import COUNTERS, PERCENTILES, Monitor

_HELP = {
    "rows": "Rows of the table",
    "bytes": "Bytes of the table, with index, slots and reserved memory",
    "load_factor": "Used fraction of the index",
    "gradient_norm": "Mean norm of the gradients of every 16th step since the last scrape",
    "inserted": "Rows inserted since the endpoint was started",
    "evicted": "Evicted rows",
    "expired": "Evicted rows that had expired",
    "refused": "Writes of keys that the admission policy refused",
    "hits": "Looked-up keys with a row",
    "misses": "Looked-up keys without a row",
    "lookups": "Lookups of batches",
    "lookup_seconds": "Wall time of the lookups",
    "updates": "Optimizer steps of the table",
    "update_seconds": "Wall time of the optimizer steps",
}
_ROW_NORM = "Percentiles of the L2 norms of sampled rows"


class Endpoint:
    """An HTTP server that answers `/metrics` in the format of Prometheus.

    Attributes:
        port: The TCP port.
    """

    def __init__(self, server: Any, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.port = int(server.server_port)

    def close(self) -> None:
        """Stops the server and frees the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(port: int, target: Target, address: str = "127.0.0.1", sample: int = 4096) -> Endpoint:
    """Serves the numbers of the tables of a model to Prometheus, in the background.

    Each series has the label `table`. Needs `pip install prometheus_client`, as in the extra
    `metrics`.

    Args:
        port: TCP port; 0 for any free port.
        target: A Variable, a list or dict of Variables, a module, a layer or a model.
        address: The address to listen on; "0.0.0.0" to let other machines read.
        sample: The number of rows per table whose norms a scrape computes. 0 for none.

    Returns:
        The endpoint, with its `port` and `close`.

    Raises:
        ImportError: `prometheus_client` is not installed.
        OSError: The port is in use.
        ValueError: `target` has no tables.

    Example:
    >>> import urllib.request
    >>> import de_core as de
    >>> users = de.Variable(dim=2, name="users")
    >>> endpoint = de.metrics.serve(0, users)
    >>> page = urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics").read().decode()
    >>> 'de_table_rows{table="users"} 0.0' in page
    True
    >>> endpoint.close()
    """
    try:
        client = importlib.import_module("prometheus_client")
        core = importlib.import_module("prometheus_client.core")
    except ImportError as error:
        raise ImportError(
            "de.metrics.serve needs prometheus_client. "
            f"Received: {error}. Run: pip install prometheus_client"
        ) from error
    registry = client.CollectorRegistry()
    registry.register(_Collector(core, Monitor(target, sample)))
    return Endpoint(*client.start_http_server(port, address, registry))


class _Collector:
    """Reads the tables at each scrape."""

    def __init__(self, core: Any, monitor: Monitor) -> None:
        self._core = core
        self._monitor = monitor
        self._one_at_a_time = threading.Lock()

    def describe(self) -> list[Any]:
        """Returns no metrics: their names do not depend on the tables."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yields the metrics of all tables."""
        with self._one_at_a_time:
            numbers = self._monitor.read()
        for part, text in _HELP.items():
            family = (
                self._core.CounterMetricFamily if part in COUNTERS else self._core.GaugeMetricFamily
            )
            metric = family(f"de_table_{part}", text, labels=["table"])
            for table, values in numbers.items():
                if part in values:
                    metric.add_metric([table], values[part])
            yield metric
        norms = self._core.GaugeMetricFamily(
            "de_table_row_norm", _ROW_NORM, labels=["table", "quantile"]
        )
        for table, values in numbers.items():
            for percent in PERCENTILES:
                if f"row_norm_p{percent}" in values:
                    quantile = str(percent / 100)
                    norms.add_metric([table, quantile], values[f"row_norm_p{percent}"])
        yield norms
