"""Several worker processes that share the ports, and their supervisor.

Each worker is a complete gateway. The system gives every connection to one of the workers. They map
the files of embedding tables, so the tables are in memory only once. Workers share labels and the
traffic split through the routes file, and metrics through a folder.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ..engines.embedded.model_folder import found_models
from ..observability.logs import LOG
from ..settings import Settings
from .server import listening_socket, ports_of, print_addresses

_VARIABLE = "_GATEWAY_WORKER"
# `server` or `de_core_gateway`: workers run the package that this module belongs to.
_PACKAGE = __name__.partition(".")[0]
_PR_SET_PDEATHSIG = 1
_RESTART_SECONDS = 1.0
# The supervisor looks at the workers this often. It replaces a worker without a heartbeat for
# _LOOKS looks, about 10 seconds. Counting looks, not time, spares the workers after a pause of the
# whole machine.
_LOOK_SECONDS = 0.1
_LOOKS = 100
_CANNOT_START = 2


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker's task, in addition to the settings.

    Attributes:
        index: The worker's number, from 0.
        folder: The folder that all workers share.
        parent: The supervisor's process id.
        models: The models that must serve before the worker is ready.
        replaces: True if this worker replaces a dead one. The other workers serve meanwhile, so
            this worker listens only after its models are loaded.
    """

    index: int
    folder: Path
    parent: int
    models: Sequence[str] = ()
    replaces: bool = False

    @property
    def heartbeat(self) -> Path:
        """The file of metrics that the worker's event loop writes every second.

        The file is missing, or its time is 0, until the worker serves.
        """
        return self.folder / f"{self.index}.prom"


def this_worker() -> Worker | None:
    """Returns this process's worker task; None if it is no worker."""
    text = os.environ.get(_VARIABLE)
    if not text:
        return None
    entries = json.loads(text)
    return Worker(**{**entries, "folder": Path(entries["folder"])})


def end_with_parent(worker: Worker) -> None:
    """Makes the kernel end this process when the supervisor ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != worker.parent:
        sys.exit(0)


class WorkerSupervisor:
    """Starts the workers, restarts those that die, and forwards signals."""

    def __init__(self, settings: Settings, arguments: Sequence[str]) -> None:
        """Creates the supervisor.

        `arguments` is the command line, which the workers use too. It gets the ports that the
        system chose.
        """
        self._settings = settings
        self._arguments = list(arguments)
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._told: int | None = None
        # By worker: the time of the last heartbeat, and for how many looks it has been the last.
        self._beats: dict[int, tuple[int, int]] = {}

    def run(self) -> int:
        """Runs the workers until a signal stops it; returns the exit status.

        Raises:
            StartError: A port is taken.
        """
        settings = self._settings
        # Keep these sockets open for the life of this process. So a port that the system chose
        # stays reserved while workers restart.
        keepers: dict[str, socket.socket] = {}
        for flag, host, port in ports_of(settings):
            # Only worker 0 listens on the admin port.
            share = flag != "--admin-port"
            keepers[flag] = listening_socket(host, port, share=share, flag=flag, listen=False)
            self._arguments += [flag, str(keepers[flag].getsockname()[1])]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        models = list(found_models(settings))
        with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
            workers = [
                Worker(index, Path(folder), os.getpid(), models)
                for index in range(settings.workers)
            ]
            for worker in workers:
                self._start(worker)
            # A worker that cannot start prints the reason to standard error and ends.
            outputs = [process.stdout for process in self._processes.values()]
            if not all(["listens" in output.readline() for output in outputs if output]):
                self._end(signal.SIGTERM)
                return _CANNOT_START if self._told is None else 0
            grpc = keepers.get("--grpc-port")
            grpc_port = grpc.getsockname()[1] if grpc else None
            print_addresses(settings, keepers["--port"], keepers.get("--admin-port"), grpc_port)
            self._look_after(workers)
        return 0

    def _start(self, worker: Worker) -> None:
        variables = {**dataclasses.asdict(worker), "folder": str(worker.folder)}
        # A worker ignores SIGHUP until its handler is installed.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            worker.heartbeat.touch()
            os.utime(worker.heartbeat, (0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", _PACKAGE, *self._arguments],
            env={**os.environ, _VARIABLE: json.dumps(variables)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes[worker.index] = process
        signal.signal(signal.SIGHUP, lambda number, _: self._end(number))
        if self._told is not None:
            # The signal came while this worker was being created, so only the other workers got it.
            process.send_signal(self._told)

    def _look_after(self, workers: Sequence[Worker]) -> None:
        while self._processes:
            for worker in workers:
                process = self._processes.get(worker.index)
                if process is None:
                    continue
                if process.poll() is None:
                    if self._hangs(worker):
                        LOG.error("worker %d does not respond and is killed", worker.index)
                        process.kill()
                    continue
                if process.stdout is not None:
                    process.stdout.close()
                del self._processes[worker.index]
                if self._told is None:
                    LOG.error(
                        "worker %d ended with %d; starting another",
                        worker.index,
                        process.returncode,
                    )
                    time.sleep(_RESTART_SECONDS)
                if self._told is None:
                    self._start(dataclasses.replace(worker, replaces=True))
            time.sleep(_LOOK_SECONDS)

    def _hangs(self, worker: Worker) -> bool:
        try:
            beat = worker.heartbeat.stat().st_mtime_ns
        except OSError:
            return False
        last, looks = self._beats.get(worker.index, (0, 0))
        looks = looks + 1 if beat == last else 0
        self._beats[worker.index] = beat, looks
        if beat == 0 or looks < _LOOKS:
            return False
        try:
            worker.heartbeat.touch()
        except OSError:
            return False  # a folder that takes no writes tells nothing about the worker
        return True

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self._told = number
        self._end(number)

    def _end(self, number: int) -> None:
        for process in list(self._processes.values()):
            if process.poll() is None:
                process.send_signal(number)
