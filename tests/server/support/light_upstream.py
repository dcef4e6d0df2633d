"""A model server process: TensorFlow Serving's gRPC with numpy functions.

Usage: `python -m tests.server.support.light_upstream PORT VERSION SECONDS`; it prints its address.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from server.dependencies import DataPlane
from server.grpc.server import GrpcServer
from server.settings import load_settings
from tests.server.support.gateway_process import ROOT, GatewayProcess, environment
from tests.server.support.numpy_engine import FUNCTIONS, NumpyEngine, signature, tensor


async def serve(port: int, version: int, seconds: float) -> None:
    told = signature("told", [tensor("x", "float", None)], [tensor("version", "int64", None)])
    functions = {"told": (told, lambda x: {"version": np.full(x.shape, version, np.int64)})}
    engine = NumpyEngine({**FUNCTIONS, **functions}, version=version, seconds=seconds)
    settings = load_settings(model_dir="unused")
    server = GrpcServer(DataPlane(engine, settings), port)
    await server.start()
    print(f"gRPC listens on 127.0.0.1:{server.port}", flush=True)
    await asyncio.Event().wait()


class LightUpstream:
    """Context manager that runs a model server process. Tests can pause, kill and restart it.

    The process keeps its port.
    """

    def __init__(self, version: int = 3, seconds: float = 0.0) -> None:
        self.version = version
        self.seconds = seconds
        self.port = 0
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.support.light_upstream",
             str(self.port), str(self.version), str(self.seconds)],
            cwd=ROOT, env=environment(), stdout=subprocess.PIPE,
        )  # fmt: skip
        line = self.process.stdout.readline().decode()
        assert "listens on" in line
        self.port = int(line.rsplit(":", 1)[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()

    def pause(self) -> None:
        """Pauses the process with its connections open, until it is resumed or killed."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> "LightUpstream":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()


def front(folder: Path, *upstreams: LightUpstream, flags: Sequence[str] = ()) -> GatewayProcess:
    """Returns a gateway in front of the model servers, which are called u0, u1, …"""
    addresses = [f"u{i}=127.0.0.1:{each.port}" for i, each in enumerate(upstreams)]
    return GatewayProcess(
        None, folder / "log", "--engine", "tfserving", "--models", "m", "--drain-seconds", "0",
        "--upstreams", ",".join(addresses), "--poll-seconds", "0.3", *flags,
    )  # fmt: skip


@contextlib.contextmanager
def fronted(
    folder: Path, *versions: int, seconds: float = 0.0, flags: Sequence[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Runs model servers of some versions. Yields a gateway in front of them, and the servers."""
    with contextlib.ExitStack() as stack:
        upstreams = [stack.enter_context(LightUpstream(each, seconds)) for each in versions]
        yield stack.enter_context(front(folder, *upstreams, flags=flags)), *upstreams


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
