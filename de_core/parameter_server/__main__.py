"""Runs one parameter server or worker: `python -m de_core.parameter_server --job ps --task 0`.

Without `--job` and `--task`, runs the task of the environment variable TF_CONFIG.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time

from de_core.parameter_server.health import Health, serve_http


def cluster_of(text: str | None) -> dict[str, list[str]]:
    """Returns the addresses of each job, from JSON or, if `text` is None, from TF_CONFIG.

    Raises:
        ValueError: The text or TF_CONFIG is not such JSON.
    """
    source = "--cluster" if text is not None else "TF_CONFIG"
    try:
        found = json.loads(os.environ.get("TF_CONFIG", "") if text is None else text)
        jobs = found["cluster"] if text is None else found
        if not jobs or not all(isinstance(job, list) for job in jobs.values()):
            raise ValueError("a list of addresses for each job is wanted")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{source} must hold the addresses of each job as JSON, such as "
            '\'{"ps": ["host:2222"], "worker": ["host:2223"]}\'. '
            f"Received: {source}={os.environ.get('TF_CONFIG') if text is None else text!r} "
            f"({error})."
        ) from error
    return dict(jobs)


def threads_for(cluster: dict[str, list[str]]) -> int:
    """Returns how many ops a server should run at the same time; 0 for TensorFlow's default.

    With few cores, TensorFlow's default is too low. Ops that wait for other processes would take
    all threads, and leave none for the ops that they wait for. TensorFlow's guide to parameter
    servers requires at least the number of workers plus one.

    Example:
    >>> from de_core.parameter_server.__main__ import threads_for
    >>> threads_for({"ps": ["host:2222"] * 2000, "worker": ["host:2223"] * 2000})
    4001
    """
    wanted = 1 + sum(map(len, cluster.values()))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    is_chosen = "TF_NUM_INTEROP_THREADS" in os.environ
    return 0 if is_chosen or wanted <= (cores or 1) else wanted


def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m de_core.parameter_server", description=__doc__)
    parser.add_argument("--job", help="such as ps or worker; default: TF_CONFIG's task")
    parser.add_argument("--task", type=int, help="its number in the job, from 0")
    parser.add_argument("--cluster", help="addresses of each job as JSON; default: TF_CONFIG")
    parser.add_argument("--http-port", type=int, help="for /healthz and /metrics; 0 for any")
    parser.add_argument(
        "--grace-seconds",
        type=float,
        default=0.0,
        help="seconds to keep serving after SIGTERM, while reported as not healthy",
    )
    options = parser.parse_args(arguments)
    try:
        cluster = cluster_of(options.cluster)
        job, task = _task_of(options.job, options.task)
        if job not in cluster or not 0 <= task < len(cluster[job]):
            jobs = {name: len(addresses) for name, addresses in cluster.items()}
            raise ValueError(
                "--job and --task must name a process of the cluster, which has so many of each: "
                f"{jobs}. Received: --job {job} --task {task}."
            )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    health = Health(job, task)
    http = None if options.http_port is None else serve_http(options.http_port, health)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from de_core.base.ops import library

    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster),
        job_name=job,
        task_index=task,
        protocol="grpc",
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads_for(cluster)),
    )
    health.ready(lambda: list(json.loads(library.de_process_tables().numpy())))
    place = f"{job} {task} at {cluster[job][task]}"
    port = "" if http is None else f", health at :{http.server_port}/healthz"
    print(f"de_core.parameter_server: {place} is ready{port}", flush=True)
    # Another thread may receive the signal, which does not wake this thread. But this thread runs
    # the handlers.
    while not stop.wait(timeout=0.5):
        pass
    health.drain()
    time.sleep(options.grace_seconds)
    print(f"de_core.parameter_server: {place} stops", flush=True)
    del server  # TensorFlow cannot stop a server; it ends with the process
    sys.stdout.flush()
    os._exit(0)


def _task_of(job: str | None, task: int | None) -> tuple[str, int]:
    """Returns the job and the task of this process: the options, or else TF_CONFIG's task."""
    if job is not None and task is not None:
        return job, task
    try:
        if job is not None or task is not None:
            raise ValueError("one of the two options is missing")
        found = json.loads(os.environ.get("TF_CONFIG", ""))["task"]
        return str(found["type"]), int(found["index"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "Give both --job and --task, or neither. Without them, TF_CONFIG must hold the task, "
            'such as {"cluster": {"ps": ["host:2222"]}, "task": {"type": "ps", "index": 0}}. '
            f"Received: --job={job}, --task={task}, TF_CONFIG={os.environ.get('TF_CONFIG')!r} "
            f"({type(error).__name__}: {error})."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
