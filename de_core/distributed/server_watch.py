"""An end to the wait for a server that does not come back."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from de_core.base.checks import received

_LOG = logging.getLogger("de_core")
# What any process of a TensorFlow cluster answers as soon as it takes requests.
_STATUS = "/tensorflow.WorkerService/GetStatus"
_LONGEST_CALL = 10.0


class ServerWatch:
    """Ends this process when a server of its cluster has been silent for too long.

    TensorFlow waits without an end for a server that is gone, has stopped or never came up, in
    calls that no exception interrupts, such as closing a session. A thread asks every server how
    it is. When one starts to be silent a warning says so; when it has been for `seconds`, a message
    on stderr names it and the remedy, and the process ends with the exit code
    `ServerWatch.EXIT_CODE`, so that what started it can start it again. Enter or start it before a
    session or a strategy is made, and leave it after these:

        with de.distributed.ServerWatch(cluster, seconds=300):
            with tf.compat.v1.train.MonitoredTrainingSession(…) as session:
                …

    A `with` statement whose end waits for a server is ended too.

    Args:
        cluster: The addresses of each job: what `tf.train.ClusterSpec` takes, or one.
        jobs: Those whose processes are watched.
        seconds: How long each may be silent: since its last answer, or since the watch began if
            it has not answered yet. Each is asked 60 times in that time, but at most every 0.1 s
            and at least every 5 s.
        on_lost: Called instead of ending the process, once, in the watch's thread, with the
            `tf.errors.UnavailableError`.

    Raises:
        ValueError: `seconds` is not positive, or the cluster has no such job.

    Example:
    >>> with ServerWatch({"ps": ["localhost:1"]}, seconds=60) as watch:
    ...     watch.silence()["/job:ps/task:0"] < 60
    True
    """

    EXIT_CODE = 75
    """What sysexits.h calls a temporary failure."""

    def __init__(
        self,
        cluster: Any,
        jobs: Iterable[str] = ("ps",),
        seconds: float = 300.0,
        on_lost: Callable[[tf.errors.UnavailableError], None] | None = None,
    ) -> None:
        if not seconds > 0:
            raise ValueError(f"`seconds` must be positive. {received(seconds=seconds)}")
        spec, jobs = tf.train.ClusterSpec(cluster), list(jobs)
        if not jobs or not set(jobs) <= set(spec.jobs):
            raise ValueError(
                f"`jobs` must be of the cluster, which has {', '.join(sorted(spec.jobs))}. "
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
        """Begins to watch, as entering does; once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Watches no more."""
        self._left.set()
        self._thread.join()

    def silence(self) -> dict[str, float]:
        """Returns for how many seconds each server has been silent, by its name."""
        return {str(server): server.silent for server in self._servers}

    def _watch(self) -> None:
        pause = min(max(self._seconds / 60, 0.1), 5.0)
        while not self._left.is_set():
            for server in self._servers:
                server.ask(min(self._seconds, _LONGEST_CALL))
            begin = time.monotonic()
            self._left.wait(pause)
            # While this process itself was stopped it heard nobody: that hardly counts.
            passed = min(time.monotonic() - begin, pause + self._seconds / 4)
            for server in self._servers:
                server.silent += passed
                server.report(max(3 * pause, self._seconds / 10), self._seconds)
            lost = [each for each in self._servers if each.silent > self._seconds]
            if lost and not self._left.is_set():
                self._on_lost(tf.errors.UnavailableError(None, None, self._message(lost)))
                return

    def _message(self, lost: list[_Server]) -> str:
        names = "; ".join(f"{each} at {each.address} ({each.reason})" for each in lost)
        commands = "; ".join(
            f"python -m de_core.server --job {each.job} --task {each.task}" for each in lost
        )
        return (
            f"Every server of the cluster must answer within {self._seconds:g} s. Received: no "
            f"answer from {names}. Start what is gone again ({commands}), then the processes that "
            "train: they go on from the last checkpoint."
        )


class _Server:
    """One process, and for how long it has been silent."""

    def __init__(self, job: str, task: int, address: str) -> None:
        self.job, self.task, self.address = job, task, address
        self.silent = 0.0
        self.reason = "not asked yet"
        self._is_asked = self._is_reported = False

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.task}"

    def ask(self, seconds: float) -> None:
        """Asks it unless an answer is awaited still."""
        if self._is_asked:
            return
        import grpc  # TensorFlow needs it itself, but does not import it

        self._is_asked, self.reason = True, "it took the call and did not answer it"
        # A connection of its own for each call: one that a network lost is not waited for, nor does
        # gRPC's pause between attempts to connect grow.
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
        """Logs once that it is silent, and once that it is not any more."""
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
