"""Measures the delay of `/livez` from a separate process while a test does something else."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from types import TracebackType

from tests.server.support.gateway_process import ROOT

# Seconds between an answer and the next question.
REST = 0.005


class LivezProbe:
    """Context manager that sends requests. At its end it sets `p99` and `most`, in seconds."""

    def __init__(self, port: int, connect: bool = False) -> None:
        """Creates the probe; with `connect` each request uses a new connection."""
        self.p99 = self.most = 0.0
        self._command = [sys.executable, "-m", __name__, str(port), *["connect"] * connect]

    def __enter__(self) -> LivezProbe:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "asking\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        output, _error = self._process.communicate("stop\n")
        if kind is None:
            seconds = sorted(json.loads(output))
            self.p99, self.most = seconds[int(len(seconds) * 0.99)], seconds[-1]


def main(port: int, connect: bool) -> None:
    import select

    seconds: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask() -> bool:
        """Returns False if the gateway closes the connection after its answer."""
        if connect:
            connection.close()
        connection.request("GET", "/livez")
        response = connection.getresponse()
        assert response.read() == b'{"status":"ok"}'
        return response.getheader("connection") != "close"

    ask()
    print("asking", flush=True)
    stays = True
    while stays and (not select.select([sys.stdin], [], [], REST)[0] or len(seconds) < 200):
        begun = time.perf_counter()
        try:
            stays = ask()
        except ConnectionResetError:
            # A worker that was killed had not accepted this connection yet.
            assert connect
        waited = time.perf_counter() - begun
        # Questions that would have been asked meanwhile would have waited for the rest of it.
        seconds += [waited - REST * late for late in range(max(1, int(waited / REST)))]
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] == ["connect"])
