"""Reports the health and metrics of a cluster process over HTTP: /healthz and /metrics."""

from __future__ import annotations

import http.server
import pathlib
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

# Name, kind, and the function that computes it from a table's statistics. A table that answers from
# the files of a SavedModel has only some of them.
_OF_A_TABLE: tuple[tuple[str, str, Callable[[dict[str, Any]], int]], ...] = (
    ("de_table_rows", "gauge", lambda stats: stats["rows"]),
    ("de_table_bytes", "gauge", lambda stats: sum(stats.get("bytes", {}).values())),
    ("de_table_hits_total", "counter", lambda stats: stats.get("hits", 0)),
    ("de_table_misses_total", "counter", lambda stats: stats.get("misses", 0)),
    ("de_table_evicted_total", "counter", lambda stats: stats.get("evicted", 0)),
)


class Health:
    """The state of a process in its cluster.

    Attributes:
        state: "starting", "ready" or "stopping".
    """

    def __init__(self, job: str, task: int) -> None:
        self._tables: Callable[[], list[dict[str, Any]]] = list
        self._labels = f'job="{job}",task="{task}"'
        self.state = "starting"
        self._begin = time.time()

    def ready(self, tables: Callable[[], list[dict[str, Any]]] = list) -> None:
        """Records that the process accepts requests.

        `tables` returns the process's tables: dicts of `table`, its name, and `stats`.
        """
        self._tables = tables
        self.state = "ready"

    def drain(self) -> None:
        """Records that the process is about to end."""
        self.state = "stopping"

    def metrics(self) -> str:
        """Returns metrics in Prometheus' text format."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        values = (
            ("de_server_ready", "gauge", int(self.state == "ready")),
            ("de_server_uptime_seconds", "gauge", round(time.time() - self._begin, 3)),
            ("de_server_resident_bytes", "gauge", pages * resource.getpagesize()),
            ("de_server_cpu_seconds_total", "counter", used.ru_utime + used.ru_stime),
        )
        lines = []
        for name, kind, value in values:
            lines += [f"# TYPE {name} {kind}", f"{name}{{{self._labels}}} {value}"]
        tables = self._tables()
        for name, kind, value_of in _OF_A_TABLE:
            lines.append(f"# TYPE {name} {kind}")
            # Sum tables of equal name, such as tables of two masters, into one series.
            sums: dict[str, int] = {}
            for table in tables:
                sums[table["table"]] = sums.get(table["table"], 0) + value_of(table["stats"])
            lines += [
                f'{name}{{{self._labels},table="{_escaped(table)}"}} {value}'
                for table, value in sorted(sums.items())
            ]
        return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def serve_http(port: int, health: Health) -> http.server.ThreadingHTTPServer:
    """Starts to serve in the background."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answers 200 while the process is ready, otherwise 503. Metrics are always served."""
            if self.path == "/metrics":
                self._answer(200, health.metrics())
            elif self.path == "/healthz":
                self._answer(200 if health.state == "ready" else 503, health.state + "\n")
            else:
                self._answer(404, "There are /healthz and /metrics.\n")

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = http.server.ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
