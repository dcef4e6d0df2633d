"""One training script for one process or many.

    python examples/cluster/train.py                          # all in this process
    python examples/cluster/train.py --servers 2 --workers 2  # five: tables on servers
    python examples/cluster/train.py --in-step 4              # four that hold and train them

To train in step on several machines, start this script on each, with the addresses and the task in
TF_CONFIG. To use servers, start `python -m de_core.parameter_server --job ps --task 0` on each
machine, with the addresses in TF_CONFIG, and this script with `--cluster` on the chief's machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

import de_core as de

DIM, IDS = 16, 100_000
Step = Callable[[tf.Tensor], tf.Tensor]


@contextlib.contextmanager
def free_addresses(count: int) -> Iterator[list[str]]:
    """Yields addresses with free ports on this machine.

    Until the end of the block the system gives the ports to nobody. TensorFlow's servers can listen
    on them, because they set SO_REUSEADDR too.
    """
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


@contextlib.contextmanager
def processes_of(servers: int, workers: int) -> Iterator[dict[str, list[str]]]:
    """Starts servers and workers on this machine, and yields all addresses."""
    with free_addresses(1 + servers + workers) as addresses:
        jobs = {
            "chief": addresses[:1],
            "ps": addresses[1 : 1 + servers],
            "worker": addresses[1 + servers :],
        }
        environment = {**os.environ, "TF_CONFIG": json.dumps({"cluster": jobs})}
        started = {
            f"{job} {task}": subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "de_core.parameter_server",
                    "--job",
                    job,
                    "--task",
                    str(task),
                ],
                env=environment,
            )
            for job in ("ps", "worker")
            for task in range(len(jobs[job]))
        }
        over = threading.Event()
        for name in started:
            threading.Thread(target=end_with, args=(name, started, over), daemon=True).start()
        try:
            yield jobs
        finally:
            over.set()
            for process in started.values():
                process.terminate()
            for process in started.values():
                process.wait()


def end_with(name: str, started: dict[str, subprocess.Popen[bytes]], over: threading.Event) -> None:
    """Ends this process with an error if the process `name` ends before the training is over."""
    status = started[name].wait()
    if over.is_set():
        return
    for process in started.values():
        process.terminate()
    print(
        "Parameter servers and workers must run until the training is over. "
        f"Received: {name} ended with status {status}. Read its message above.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)  # TensorFlow waits for the lost process in another thread


def start_in_step(workers: int, steps: int) -> None:
    """Runs this script in `workers` processes that train in step, and waits for them."""
    with free_addresses(workers) as addresses:
        cluster = {"cluster": {"worker": addresses}}
        started = [
            subprocess.Popen(
                [sys.executable, __file__, "--steps", str(steps)],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps(
                        {**cluster, "task": {"type": "worker", "index": index}}
                    ),
                },
            )
            for index in range(workers)
        ]
        codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"Workers ended with {codes}.")


def train_in_step(steps: int) -> None:
    """Runs one of the processes that train in step. The first one prints."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    task, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    with strategy.scope():
        items, step = step_for(None, task)
    together = tf.function(lambda seed: strategy.run(step, (seed,)))
    losses = [together(tf.constant(-1))]
    begin = time.perf_counter()
    losses += [together(tf.constant(seed)) for seed in range(steps)]
    rate = steps / (time.perf_counter() - begin)
    size = int(items.size())  # all workers must call this; it counts the rows of all workers
    if task == 0:
        ends = f"loss {float(losses[0]):.5f} to {float(losses[-1]):.5f}"
        print(f"{ends}, {rate:.1f} steps/s of {workers} batches, rows [{size}]", flush=True)


def step_for(devices: list[str] | None, worker: int = 0) -> tuple[de.Variable, Step]:
    """Returns a table, and a step that trains it to pull ids that were drawn together closer."""
    items = de.Variable(dim=DIM, name="items", devices=devices, initializer="uniform")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.05, 1e-8))
    optimizer.build(items.trainable_variables)

    @tf.function
    def step(seed: tf.Tensor) -> tf.Tensor:
        ids = tf.random.stateless_uniform([1024, 2], tf.stack([seed, worker]), 0, IDS, tf.int64)
        ids = tf.stack([ids[:, 0], ids[:, 0] // 10 * 10], 1)  # each id, and the first id of its ten
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(items, ids)
            loss = tf.reduce_mean(tf.reduce_sum((rows[:, 0] - rows[:, 1]) ** 2, -1))
        gradients = tape.gradient(loss, items.trainable_variables)
        optimizer.apply_gradients(zip(gradients, items.trainable_variables, strict=True))
        return loss

    return items, step


def train(jobs: dict[str, list[str]] | None, steps: int) -> None:
    """Trains and prints the first and last loss, steps per second and the rows of each server."""
    devices = coordinator = None
    if jobs:
        # End this process with an error if a server is silent for five minutes.
        de.distributed.ServerWatch(jobs, seconds=300).start()
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(jobs), rpc_layer="grpc", task_type="chief", task_id=0
        )
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        count = len(jobs["ps"])
        devices = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(count)]
    items, step = step_for(devices)
    losses = [step(tf.constant(-1))]
    begin = time.perf_counter()
    for seed in range(steps):
        seed_tensor = tf.constant(seed)
        if coordinator is None:
            losses.append(step(seed_tensor))
        else:
            losses.append(coordinator.schedule(step, args=(seed_tensor,)))
    if coordinator is not None:
        coordinator.join()
    rate = steps / (time.perf_counter() - begin)
    last = losses[-1] if coordinator is None else losses[-1].fetch()
    sizes = [int(items.size(index)) for index in range(items.shard_num)]
    print(f"loss {float(losses[0]):.5f} to {float(last):.5f}, {rate:.1f} steps/s, rows {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=0, help="parameter servers to start here")
    parser.add_argument("--workers", type=int, default=1, help="workers to start here")
    parser.add_argument("--cluster", help="JSON: addresses of the jobs chief, ps and worker")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--in-step", type=int, help="workers in step to start here")
    options = parser.parse_args()
    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task"):
        train_in_step(options.steps)
    elif options.in_step:
        start_in_step(options.in_step, options.steps)
    elif options.cluster:
        train(json.loads(options.cluster), options.steps)
    elif options.servers:
        with processes_of(options.servers, options.workers) as jobs:
            train(jobs, options.steps)
    else:
        train(None, options.steps)


if __name__ == "__main__":
    main()
