"""Runs wrk and h2load (Debian: wrk, nghttp2-client), and measures the server's CPU time."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

TOOLS = all(shutil.which(tool) for tool in ("wrk", "h2load"))
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """One run: requests per second, CPU microseconds per request, 99th percentile in seconds."""

    rate: float
    cpu: float
    p99: float


def pids_of(pid: int) -> list[int]:
    """Returns a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and its children so far."""
    total = 0
    for each in pids_of(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def script(folder: Path, name: str, body: bytes, headers: dict[str, str] | None = None) -> Path:
    """Writes a body, and a wrk script that posts it."""
    (folder / f"{name}.body").write_bytes(body)
    lines = [
        'wrk.method = "POST"',
        f'local file = io.open("{folder / f"{name}.body"}", "rb")',
        'wrk.body = file:read("*a")',
        *(f'wrk.headers["{key}"] = "{value}"' for key, value in (headers or {}).items()),
    ]
    file = folder / f"{name}.lua"
    file.write_text("\n".join(lines))
    return file


def with_ids(lua: Path) -> Path:
    """Writes a script that gives each request of another script its own X-Request-Id."""
    file = lua.with_stem(f"{lua.stem}_ids")
    lines = [
        lua.read_text(),
        "local number = 0",
        "request = function()",
        "  number = number + 1",
        '  wrk.headers["X-Request-Id"] = number',
        "  return wrk.format()",
        "end",
    ]
    file.write_text("\n".join(lines))
    return file


def wrk(
    port: int,
    pid: int,
    path: str,
    lua: Path,
    connections: int,
    seconds: float,
    refused: float = 0.0,
) -> Measured:
    """Sends requests as fast as possible. The fraction `refused` of the answers must be errors."""
    before = cpu_seconds(pid)
    done = subprocess.run(
        ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{round(seconds)}s", "-s", str(lua),
         f"http://127.0.0.1:{port}{path}"],
        capture_output=True, text=True, check=True, timeout=seconds + 60,
    ).stdout  # fmt: skip
    cpu = cpu_seconds(pid) - before
    requests = int(re.search(r"(\d+) requests in", done)[1])
    others = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    assert abs(int(others[1] if others else 0) - refused * requests) <= connections, done
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", done).groups()
    p99 = float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    return Measured(rate, cpu / requests * 1e6, p99)


def latencies(
    folder: Path, port: int, path: str, body: Path, rate: float, clients: int, seconds: int
) -> tuple[float, float]:
    """Sends requests at a fixed rate; returns the median and the 99th percentile in seconds."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    subprocess.run(
        ["h2load", "--h1", f"-c{clients}", f"--rps={rate / clients:.2f}", f"-D{seconds}",
         "--warm-up-time=1", f"-d{body}", f"--log-file={log}", f"http://127.0.0.1:{port}{path}"],
        capture_output=True, check=True, timeout=seconds + 60,
    )  # fmt: skip
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    times = sorted(int(row[2]) / 1e6 for row in rows if row[1] == "200")
    # h2load writes status 0 for requests that it abandons when the warm-up or the measurement ends.
    assert {row[1] for row in rows} <= {"200", "0"}
    assert len(rows) - len(times) <= clients
    return statistics.median(times), times[int(len(times) * 0.99)]
