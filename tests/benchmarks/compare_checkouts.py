"""Compares the speed of lookups, upserts and steps in two checkouts, before and after a change.

Each round starts one process per checkout. The two take turns: while one measures, the other waits.
So both meet the same disturbances of the machine. A table may lie badly in memory for the whole
life of a process, so the result is the median over all rounds. The op libraries of both checkouts
must be compiled for the TensorFlow of this interpreter.

Run: python tests/benchmarks/compare_checkouts.py BEFORE AFTER --rounds 10
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROWS, DIM, BATCH, SMALL = 2_000_000, 32, 65_536, 1_024
TURNS = 6
OPERATIONS = (
    f"{BATCH:,} keys, lookup",
    f"{BATCH:,} keys, upsert",
    f"{BATCH:,} keys, Adam step",
    f"{SMALL:,} keys, lookup",
    f"{SMALL:,} keys, Adam step",
)


def operations() -> dict[str, tuple[Callable, list, int]]:
    """Returns, by operation, the function, its batches, and the passes over them per turn."""
    import keras
    import numpy as np
    import tensorflow as tf

    import de_core as de

    table = de.Variable(dim=DIM, name="compared", initializer="uniform")
    for first in range(0, ROWS, 4 * BATCH):
        keys = np.arange(first, min(ROWS, first + 4 * BATCH)) * 7919
        table.upsert(keys, tf.ones([len(keys), DIM]))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(1e-3))
    optimizer.build(table.trainable_variables)
    rows = tf.ones([BATCH, DIM])

    @tf.function
    def lookup(keys):
        return table.lookup(keys)

    @tf.function
    def upsert(keys):
        table.upsert(keys, rows)

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.embedding_lookup(table, keys) ** 2)
        gradients = tape.gradient(loss, table.trainable_variables)
        optimizer.apply_gradients(zip(gradients, table.trainable_variables, strict=True))

    draws = np.random.default_rng(0)
    batches = [tf.constant(draws.integers(0, ROWS, BATCH) * 7919) for _ in range(20)]
    small = [keys[:SMALL] for keys in batches]
    work = [(lookup, batches, 1), (upsert, batches, 1), (step, batches, 1)]
    work += [(lookup, small, 10), (step, small, 10)]
    runs = dict(zip(OPERATIONS, work, strict=True))
    for run, keys, _ in runs.values():  # traces the functions, and wakes the threads
        for some in keys[:3]:
            run(some)
    return runs


def answer_turns() -> None:
    """Measures the operation that a line of the standard input names, until the input ends.

    Prints a JSON line first, the path of the package. Then it prints one per turn: the wall time of
    each call and the mean CPU time per call, in ms.
    """
    import de_core

    runs = operations()
    print(json.dumps(de_core.__file__), flush=True)
    for line in sys.stdin:
        run, batches, passes = runs[line.strip()]
        wall, cpu = [], time.process_time()
        for _ in range(passes):
            for keys in batches:
                begin = time.perf_counter()
                run(keys)
                wall.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps([wall, 1e3 * (time.process_time() - cpu) / len(wall)]), flush=True)


def started(checkout: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, "--measure"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if not Path(json.loads(process.stdout.readline())).is_relative_to(checkout):
        sys.exit(f"`checkout` must hold the package de_core. Received: {checkout}")
    return process


def one_round(checkouts: list[Path]) -> list[dict[str, tuple[float, float]]]:
    """Returns, per checkout, each operation's median wall and CPU time per call, in ms."""
    processes = [started(checkout) for checkout in checkouts]
    results = [{} for _ in processes]
    for name in OPERATIONS:
        turns = [[] for _ in processes]
        for turn in range(TURNS):
            for number in (0, 1) if turn % 2 == 0 else (1, 0):
                print(name, file=processes[number].stdin, flush=True)
                turns[number].append(json.loads(processes[number].stdout.readline()))
        for result, own in zip(results, turns, strict=True):
            wall = statistics.median(time for calls, _ in own for time in calls)
            result[name] = wall, statistics.median(cpu for _, cpu in own)
    for process in processes:
        process.stdin.close()
        process.wait()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="folder of the first checkout")
    parser.add_argument("after", type=Path, help="folder of the second checkout")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    arguments = parser.parse_args()
    checkouts = [arguments.before.resolve(), arguments.after.resolve()]
    rounds = []
    for number in range(arguments.rounds):
        order = slice(None, None, 1 if number % 2 == 0 else -1)
        rounds.append(one_round(checkouts[order])[order])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    print("| operation | before, ms | after, ms | after / before | the same in CPU time |")
    print("|---|---|---|---|---|")
    for name in OPERATIONS:
        (wall0, cpu0), (wall1, cpu1) = (
            [
                statistics.median(results[side][name][clock] for results in rounds)
                for clock in (0, 1)
            ]
            for side in (0, 1)
        )
        print(f"| {name} | {wall0:.3f} | {wall1:.3f} | {wall1 / wall0:.2f} | {cpu1 / cpu0:.2f} |")


if __name__ == "__main__":
    answer_turns() if sys.argv[1:] == ["--measure"] else main()
