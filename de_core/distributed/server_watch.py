"""Ends a process whose parameter server does not come back."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received

_LOG = logging.getLogger("de_core")
# Every process of a TensorFlow cluster answers this method as soon as it accepts requests.
_STATUS = "/tensorflow.WorkerService/GetStatus"
_LONGEST_CALL = 10.0


class ServerWatch:
    """Ends this process when a server of its cluster has been silent for too long.

    TensorFlow waits forever for a server that has stopped or never started. It waits even in calls
    that no exception interrupts, such as closing a session. The watch is a thread that pings every
    server. It logs a warning when a server falls silent. After `seconds` of silence it prints a
    message on stderr that names the server and the remedy. Then it ends the process with the exit
    code `ServerWatch.EXIT_CODE`, so that a supervisor can restart the process. Start the watch
    before you create a session or a strategy, and stop it after you close them:

        with de.distributed.ServerWatch(cluster, seconds=300):
            with tf.compat.v1.train.MonitoredTrainingSession(…) as session:
                …

    The watch also ends a process that waits for a server at the end of such a `with` statement.

    Args:
        cluster: The addresses of each job: a `tf.train.ClusterSpec`, or an argument that it
            accepts.
        jobs: The jobs whose processes are watched.
        seconds: Longest allowed silence in seconds. It counts from the server's last answer, or
            from the start of the watch if the server has not answered yet. The watch pings each
            server 60 times in this period, but at most every 0.1 s and at least every 5 s.
        on_lost: Called once, instead of ending the process, with a `tf.errors.UnavailableError`. It
            runs in the watch's thread.

    Raises:
        ValueError: `seconds` is not positive, or a job is not in the cluster.

    Example:
    >>> with ServerWatch({"ps": ["localhost:1"]}, seconds=60) as watch:
    ...     watch.silence()["/job:ps/task:0"] < 60
    True
    """

    EXIT_CODE = 75
    """EX_TEMPFAIL of sysexits.h: a temporary failure."""

    def __init__(
        self,
        cluster: tf.train.ClusterSpec | Mapping[str, Sequence[str]],
        jobs: Iterable[str] = ("ps",),
        seconds: float = 300.0,
        on_lost: Callable[[tf.errors.UnavailableError], None] | None = None,
    ) -> None:
        if not seconds > 0:
            raise ValueError(f"`seconds` must be positive. {received(seconds=seconds)}")
        spec, jobs = tf.train.ClusterSpec(cluster), list(jobs)
        if not jobs or not set(jobs) <= set(spec.jobs):
            raise ValueError(
                f"`jobs` must be jobs of the cluster: {', '.join(sorted(spec.jobs))}. "
                + received(jobs=jobs)
            )
        self._servers = [
            _Server(job, task, spec.task_address(job, task))
            for job in jobs
            for task in spec.task_indices(job)
        ]
        self._seconds = float(seconds)
        self._on_lost = on_lost or _end_process
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="de-server-watch", daemon=True)

    def __enter__(self) -> ServerWatch:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> ServerWatch:
        """Starts the watch, like entering it. Call it once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops the watch."""
        self._left.set()
        self._thread.join()

    def silence(self) -> dict[str, float]:
        """Returns the seconds since each server's last answer, by the server's name."""
        return {str(server): server.silent for server in self._servers}

    def _watch(self) -> None:
        pause = min(max(self._seconds / 60, 0.1), 5.0)
        while not self._left.is_set():
            for server in self._servers:
                server.ask(min(self._seconds, _LONGEST_CALL))
            begin = time.monotonic()
            self._left.wait(pause)
            # A suspended process receives no answers. So count at most a quarter of `seconds` per
            # round: a suspension alone must not end the process.
            passed = min(time.monotonic() - begin, pause + self._seconds / 4)
            for server in self._servers:
                server.silent += passed
                server.report(max(3 * pause, self._seconds / 10), self._seconds)
            longest = max(server.silent for server in self._servers)
            if longest > self._seconds and not self._left.is_set():
                # Name also the servers that fell silent a little later: they need a restart too.
                lost = [each for each in self._servers if each.silent > 0.75 * self._seconds]
                self._on_lost(tf.errors.UnavailableError(None, None, self._message(lost)))
                return

    def _message(self, lost: list[_Server]) -> str:
        names = "; ".join(f"{each} at {each.address} ({each.reason})" for each in lost)
        commands = "; ".join(
            f"python -m de_core.parameter_server --job {each.job} --task {each.task}"
            for each in lost
        )
        return (
            f"Every server of the cluster must answer within {self._seconds:g} s. Received: no "
            f"answer from {names}. Restart the servers ({commands}), then the training "
            "processes. They continue from the last checkpoint."
        )


class _Server:
    """A watched process and the time of its last answer."""

    def __init__(self, job: str, task: int, address: str) -> None:
        self.job, self.task, self.address = job, task, address
        self.silent = 0.0
        self.reason = "not asked yet"
        self._is_asked = self._is_reported = False

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.task}"

    def ask(self, seconds: float) -> None:
        """Pings the server, unless a ping is still pending."""
        if self._is_asked:
            return
        import grpc  # Imported late: TensorFlow installs grpc but does not import it.

        self._is_asked, self.reason = True, "accepted the call and did not answer"
        # Use a new connection for each ping. A connection that the network lost would block later
        # pings, and gRPC would wait longer before each attempt to reconnect.
        channel = grpc.insecure_channel(
            self.address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        call = channel.unary_unary(_STATUS).future(b"", timeout=seconds)

        def note(call: Any) -> None:
            if call.code() == grpc.StatusCode.OK:
                self.silent = 0.0
            else:
                self.reason = f"{call.code().name}: {call.details()}"
            self._is_asked = False

        call.add_done_callback(note)
        call.add_done_callback(lambda _: channel.close())

    def report(self, patience: float, seconds: float) -> None:
        """Logs once when the server falls silent, and once when it answers again."""
        is_silent = self.silent > patience
        if is_silent and not self._is_reported:
            _LOG.warning(
                "%s at %s has been silent for %.1f s (%s); this process waits for it for %g s.",
                *(self, self.address, self.silent, self.reason, seconds),
            )
        elif self._is_reported and not is_silent:
            _LOG.warning("%s at %s answers again.", self, self.address)
        self._is_reported = is_silent


def _end_process(error: tf.errors.UnavailableError) -> None:
    sys.stdout.flush()
    print(
        f"{error.message} This process ends with exit code {ServerWatch.EXIT_CODE}.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(ServerWatch.EXIT_CODE)
