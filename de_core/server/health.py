"""What a process of a cluster tells of itself over HTTP: /healthz and /metrics."""

from __future__ import annotations

import http.server
import pathlib
import resource
import threading
import time


class Health:
    """Whether a process takes part in its cluster.

    Args:
        job: Its job.
        task: Its number in the job.
    """

    def __init__(self, job: str, task: int) -> None:
        self._labels = f'job="{job}",task="{task}"'
        self._state = "starting"
        self._begin = time.time()

    @property
    def state(self) -> str:
        """Returns "starting", "ready" or "stopping"."""
        return self._state

    def ready(self) -> None:
        """Notes that the process takes requests."""
        self._state = "ready"

    def drain(self) -> None:
        """Notes that the process is about to end."""
        self._state = "stopping"

    def metrics(self) -> str:
        """Returns metrics in Prometheus' text format."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        values = (
            ("de_server_ready", "gauge", int(self._state == "ready")),
            ("de_server_uptime_seconds", "gauge", round(time.time() - self._begin, 3)),
            ("de_server_resident_bytes", "gauge", pages * resource.getpagesize()),
            ("de_server_cpu_seconds_total", "counter", used.ru_utime + used.ru_stime),
        )
        lines = []
        for name, kind, value in values:
            lines += [f"# TYPE {name} {kind}", f"{name}{{{self._labels}}} {value}"]
        return "\n".join(lines) + "\n"


def serve_http(port: int, health: Health) -> http.server.ThreadingHTTPServer:
    """Starts to answer in the background.

    Args:
        port: 0 for any free one.
        health: What is told.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answers 200 while the process is ready, 503 else; metrics in any case."""
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
