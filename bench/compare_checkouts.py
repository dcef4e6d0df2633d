"""Compares the speed of lookups, upserts and steps in two checkouts, before and after a change.

Each round starts one process per checkout. The two measure in turns. A table may lie badly in
memory for the whole life of a process, so the result is the median over all rounds. The op
libraries of both checkouts must be compiled for the TensorFlow of this interpreter.

Run: python bench/compare_checkouts.py BEFORE AFTER --rounds 10 --value-dtype float32
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from rounds import Child, answer, arguments_of, interleaved

ROWS, DIM, BATCH, SMALL = 2_000_000, 32, 65_536, 1_024
TURNS = 6


def operations(value_dtype: str) -> dict[str, tuple[Callable, list, int]]:
    """Returns, by operation, the function, its batches, and the passes over them per turn.

    Args:
        value_dtype: Dtype of the table's rows.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    import de_core as de

    table = de.Variable(dim=DIM, value_dtype=value_dtype, name="compared", initializer="uniform")
    for first in range(0, ROWS, 4 * BATCH):
        keys = np.arange(first, min(ROWS, first + 4 * BATCH)) * 7919
        table.upsert(keys, tf.ones([len(keys), DIM], value_dtype))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(1e-3))
    optimizer.build(table.trainable_variables)
    rows = tf.ones([BATCH, DIM], value_dtype)

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
        f"{BATCH:,} keys, lookup": (lookup, batches, 1),
        f"{BATCH:,} keys, upsert": (upsert, batches, 1),
        f"{BATCH:,} keys, Adam step": (step, batches, 1),
        f"{SMALL:,} keys, lookup": (lookup, small, 10),
        f"{SMALL:,} keys, Adam step": (step, small, 10),
    }


def one_round(checkouts: list[Path], value_dtype: str) -> list[dict[str, tuple[float, float]]]:
    """Returns, per checkout, each operation's median wall and CPU time per call, in ms."""
    children = []
    for checkout in checkouts:
        command = [sys.executable, "-P", __file__, "--measure", value_dtype]
        paths = f"{checkout}{os.pathsep}{Path(__file__).resolve().parent}"
        children.append(Child(command, {"PYTHONPATH": paths}))
        package, names = children[-1].about
        if not Path(package).is_relative_to(checkout):
            sys.exit(f"`checkout` must hold the package de_core. Received: {checkout}")
    times = {name: interleaved(children, name, TURNS) for name in names}
    for child in children:
        child.end()
    return [{name: both[side] for name, both in times.items()} for side in (0, 1)]


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("before", type=Path, help="folder of the first checkout")
    parser.add_argument("after", type=Path, help="folder of the second checkout")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    parser.add_argument(
        "--value-dtype", default="float32", help="dtype of the rows; default float32"
    )
    arguments = parser.parse_args()
    checkouts = [arguments.before.resolve(), arguments.after.resolve()]
    rounds = []
    for number in range(arguments.rounds):
        order = slice(None, None, 1 if number % 2 == 0 else -1)
        rounds.append(one_round(checkouts[order], arguments.value_dtype)[order])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    print("| operation | before, ms | after, ms | after / before | the same in CPU time |")
    print("|---|---|---|---|---|")
    for name in rounds[0][0]:
        times = [[results[side][name] for results in rounds] for side in (0, 1)]
        (wall0, cpu0), (wall1, cpu1) = (map(statistics.median, zip(*side)) for side in times)  # noqa: B905
        print(f"| {name} | {wall0:.3f} | {wall1:.3f} | {wall1 / wall0:.2f} | {cpu1 / cpu0:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        import de_core

        runs = operations(sys.argv[2])
        answer(runs, [de_core.__file__, list(runs)])
    else:
        main()
