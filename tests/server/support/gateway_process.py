"""A gateway in its own process, as users run it."""

import contextlib
import http.client
import io
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from server import keys
from tests.server.support.asgi import Reply
from tests.server.support.eventually import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
NAME = "de_core_gateway"
COMMAND = (sys.executable, "-m", "server")
#: The same for the gateway that `installed` describes, and for a gateway with numpy functions.
INSTALLED = (sys.executable, "-m", NAME)
STUB = (sys.executable, "-m", "tests.server.support.stub_gateway")


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DE_GATEWAY_")}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}


def installed(site: Path) -> dict[str, Any]:
    """Returns options with which a process imports the gateway from `site`, not the checkout's."""
    return {"cwd": site / "empty", "env": {**environment(), "PYTHONPATH": str(site)}}


def run(*command: str | Path, seconds: float = PATIENCE_S, **options: Any) -> str:
    """Runs a program that must succeed; returns what it printed. In the checkout by default."""
    options = {"cwd": ROOT, "env": environment(), **options}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds, **options
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def make_key(name: str, *scopes: str) -> tuple[str, str]:
    """Creates a key as users do; returns it and its line of the keys file."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        assert keys.main([name, *scopes]) == 0
    key, line = told.getvalue().splitlines()
    return key.removeprefix("key: "), line


def write_key(folder: Path, *scopes: str) -> tuple[str, Path]:
    """Creates a key; returns it and the keys file that holds it."""
    key, line = make_key("tests", *scopes)
    file = folder / "keys.yaml"
    file.write_text(f"keys:\n{line}\n")
    return key, file


def tls_files(folder: Path) -> tuple[Path, Path]:
    """Writes a self-signed certificate for 127.0.0.1 and localhost, and its key."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", certificate,
    )  # fmt: skip
    return certificate, key


def children_of(pid: int) -> list[int]:
    """Returns the child processes of a process, started by any of its threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue
    return sorted(found)


def has_ended(pid: int) -> bool:
    """Returns whether a process has ended; its parent may not have asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ask_port(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """Sends a request; a list of bytes is a body in chunks, and other bodies become JSON."""
    if body is not None and not isinstance(body, bytes | list):
        body = json.dumps(body).encode()
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    extra: dict[str, Any] = {"context": tls} if tls else {}
    connection = kind("127.0.0.1", port, timeout=PATIENCE_S, **extra)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {}, encode_chunked=isinstance(body, list))
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, named, response.read())


class GatewayProcess:
    """A gateway on a free port. A context manager that stops the process at the end."""

    def __init__(
        self,
        model_dir: Path | None,
        log: Path,
        *arguments: str,
        program: Sequence[str] = COMMAND,
        **options: Any,
    ) -> None:
        """Starts a program, by default in the checkout. `options` are passed to `Popen`."""
        folder = ("--model-dir", str(model_dir)) if model_dir else ()
        self._log_file = log.open("wb")
        self.log_path = log
        self.process = subprocess.Popen(
            [*program, *folder, "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            **{"cwd": ROOT, "env": environment(), **options},
        )
        self.port = self.grpc_port = 0
        self.tls: ssl.SSLContext | None = None

    def __enter__(self) -> "GatewayProcess":
        line = self.process.stdout.readline().decode()
        if "Gateway listens on http" not in line:
            self.__exit__()
            raise AssertionError(f"the gateway did not start:\n{self.log()}")
        self.port = int(line.rsplit(":", 1)[1])
        return self

    def port_of(self, what: str) -> int:
        """Returns the port of `what`, e.g. gRPC, from the next line of output that names it.

        The gateway prints one line per port in a fixed order, so ask in this order.
        """
        while line := self.process.stdout.readline().decode():
            if line.startswith(f"{what} listens on "):
                return int(line.rsplit(":", 1)[1])
        raise AssertionError(f"{what} does not listen:\n{self.log()}")

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()
        self._log_file.close()

    def log(self) -> str:
        return self.log_path.read_text()

    def ask(self, *request: Any, port: int | None = None) -> Reply:
        """Sends a request, which has the arguments of `ask_port` after the port."""
        return ask_port(port or self.port, *request, tls=self.tls)

    def wait_for(self, path: str, accept: Any) -> Reply:
        """Repeats a request until `accept(reply)` is true."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            reply = self.ask("GET", path)
            if accept(reply):
                return reply
            assert time.monotonic() < deadline, f"{path} answers {reply}\n{self.log()}"
            time.sleep(0.05)

    def metric(self, start: str) -> float:
        """Returns the sum of the metrics whose lines begin so."""
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start))

    def wait_in_flight(self, requests: int) -> None:
        """Waits until this many requests run, not counting the request that reads the metric."""
        wanted = f"gateway_in_flight {requests + 1}.0"
        self.wait_for("/metrics", lambda reply: wanted in reply.body.decode())

    def wait_ready(self) -> None:
        self.wait_for("/readyz", lambda reply: reply.status == 200)


@contextlib.contextmanager
def stub_gateway(folder: Path, *flags: str) -> Iterator[GatewayProcess]:
    """Runs a gateway with numpy functions that is ready; checks at the end that nothing failed."""
    with GatewayProcess(None, folder / "log", *flags, program=STUB) as gateway:
        gateway.wait_ready()
        yield gateway
        assert "Traceback" not in gateway.log()
