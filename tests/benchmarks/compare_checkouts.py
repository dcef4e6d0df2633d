"""Compares the speed of lookups, upserts and steps in two checkouts, before and after a change.

Each round measures both checkouts, each in its own process. The order alternates from round to
round. The op libraries of both checkouts must be compiled for the TensorFlow of this interpreter.

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
from pathlib import Path

ROWS, DIM, BATCH, SMALL = 2_000_000, 32, 65_536, 1_024


def measure() -> dict[str, tuple[float, float]]:
    """Returns the median wall time and the mean CPU time per call, in ms, of each operation."""
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
    return {
        f"{BATCH:,} keys, lookup": timed(lookup, batches, 5),
        f"{BATCH:,} keys, upsert": timed(upsert, batches, 5),
        f"{BATCH:,} keys, Adam step": timed(step, batches, 5),
        f"{SMALL:,} keys, lookup": timed(lookup, small, 50),
        f"{SMALL:,} keys, Adam step": timed(step, small, 50),
    }


def timed(run, batches, repeats: int) -> tuple[float, float]:
    for keys in batches[:3]:  # traces the function, and wakes the threads
        run(keys)
    wall, cpu = [], time.process_time()
    for _ in range(repeats):
        for keys in batches:
            begin = time.perf_counter()
            run(keys)
            wall.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(wall), 1e3 * (time.process_time() - cpu) / len(wall)


def measured(checkout: Path) -> dict[str, tuple[float, float]]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-P", __file__, "--measure"]
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    library, results = json.loads(answer.stdout.splitlines()[-1])
    if not Path(library).is_relative_to(checkout):
        sys.exit(f"`checkout` must hold the package de_core. Received: {checkout}")
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
    results = {checkout: [] for checkout in checkouts}
    for number in range(arguments.rounds):
        for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
            results[checkout].append(measured(checkout))
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    print("| operation | before, ms | after, ms | after / before | the same in CPU time |")
    print("|---|---|---|---|---|")
    for name in results[checkouts[0]][0]:
        (wall0, cpu0), (wall1, cpu1) = (
            [statistics.median(run[name][clock] for run in results[checkout]) for clock in (0, 1)]
            for checkout in checkouts
        )
        print(f"| {name} | {wall0:.3f} | {wall1:.3f} | {wall1 / wall0:.2f} | {cpu1 / cpu0:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        import de_core

        print(json.dumps([de_core.__file__, measure()]))
    else:
        main()
