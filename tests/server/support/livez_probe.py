"""Measures the delay of `/livez` from a separate process while a test does something else."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from types import TracebackType

from tests.server.support.gateway_process import ROOT


class LivezProbe:
    """Context manager that sends requests. At its end it sets `p99` and `most`, in seconds."""

    def __init__(self, port: int) -> None:
        self.p99 = self.most = 0.0
        self._command = [sys.executable, "-m", __name__, str(port)]

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


def main(port: int) -> None:
    import select

    seconds: list[float] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/livez")
    connection.getresponse().read()
    print("asking", flush=True)
    while not select.select([sys.stdin], [], [], 0.005)[0] or len(seconds) < 200:
        begun = time.perf_counter()
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        seconds.append(time.perf_counter() - begun)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]))
