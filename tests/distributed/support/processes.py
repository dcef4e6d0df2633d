"""Processes of a TensorFlow cluster on loopback."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.support.ports import held_ports

ROOT = pathlib.Path(__file__).parents[3]
PROGRAMS = pathlib.Path(__file__).parents[1] / "programs"


def result_of(output: str) -> dict:
    """Returns the result that a program printed."""
    [line] = [line for line in output.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


class Cluster:
    """Addresses of a cluster, and the processes started so far."""

    def __init__(self, folder: pathlib.Path, **jobs: int):
        ports = iter(held_ports(sum(jobs.values())))
        self.jobs = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()
        }
        self.folder = folder
        self.processes: dict[str, subprocess.Popen] = {}

    def start(
        self, name: str, *command: object, inside: Sequence[str] = (), worker: int | None = None
    ) -> subprocess.Popen:
        """Starts Python with arguments; its output goes to a file named after the process.

        The command prefix `inside` runs the process elsewhere, such as in a namespace. `worker` is
        the task of a synchronous worker.
        """
        task = {} if worker is None else {"task": {"type": "worker", "index": worker}}
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CONFIG": json.dumps({"cluster": self.jobs, **task}),
            "PYTHONPATH": str(ROOT),
        }
        with self.output_file(name).open("ab") as output:
            process = subprocess.Popen(
                [*inside, sys.executable, *map(str, command)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=ROOT,
            )
        self.processes[name] = process
        return process

    def serve(self, job: str, task: int, *options: object, inside: Sequence[str] = ()) -> str:
        """Starts the parameter server's command and returns the process's name."""
        name = f"{job}_{task}"
        task_options = ["--job", job, "--task", task, *options]
        self.start(name, "-m", "de_core.parameter_server", *task_options, inside=inside)
        return name

    def serve_all(self, *jobs: str, **options: object) -> list[str]:
        """Starts the parameter server's command for all tasks of some jobs; returns the names."""
        return [
            self.serve(job, task, **options) for job in jobs for task in range(len(self.jobs[job]))
        ]

    def start_workers(self, *command: object, name: str = "worker") -> list[str]:
        """Starts all synchronous workers, each with its task, and returns the processes' names."""
        names = [f"{name}_{task}" for task in range(len(self.jobs["worker"]))]
        for task, each in enumerate(names):
            self.start(each, *command, worker=task)
        return names

    def output_file(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.txt"

    def output(self, name: str) -> str:
        return self.output_file(name).read_text(errors="replace")

    def wait_until_printed(self, name: str, text: str) -> str:
        """Waits until a process prints a text, and returns all its output so far."""
        end = time.monotonic() + 180
        while text not in self.output(name):
            assert self.processes[name].poll() is None, self.output(name)[-3000:]
            assert time.monotonic() < end, f"{name}: {self.output(name)[-3000:]}"
            time.sleep(0.1)
        return self.output(name)

    def finish(self, name: str) -> str:
        """Waits until a process ends with status 0, and returns its output."""
        code = self.processes[name].wait(240)
        assert code == 0, self.output(name)[-4000:]
        return self.output(name)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
