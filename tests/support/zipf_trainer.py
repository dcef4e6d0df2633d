"""Trains a table with a tier for minutes and prints the resident memory each minute.

    python tests/support/long_run.py DIRECTORY ROWS MINUTES MEMORY_MIB

A row has 64 floats and Adam's slots, 776 bytes. A step looks up 16,384 ids under Zipf(1.05) and
applies a gradient. `resident` is the memory of the process without that of TensorFlow, measured
before the table is made. Beside it is the bound: the tier's memory and the index of the disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import de_core as de

DIM, BATCH = 64, 16384


def resident(name: str = "VmRSS") -> int:
    """Returns a number of bytes of /proc/self/status."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[name].split()[0])


def ranks(rows: int, random: np.random.Generator, count: int) -> np.ndarray:
    """Draws numbers below `rows`; rank k has about the probability of k ** -1.05."""
    low, high = 1.0, (rows + 1) ** -0.05
    return (random.uniform(high, low, count) ** -20).astype(np.int64) - 1


def trainer(table: de.Variable) -> Callable[[tf.Tensor], None]:
    """Returns a function that trains a batch of ids with Adam."""
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
    variables = table.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step(ids: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(de.embedding_lookup(table, ids) - 2.0))
        optimizer.apply(tape.gradient(loss, variables), variables)

    return step


def main() -> None:
    """Fills the table, then trains it."""
    directory, rows, minutes = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    memory = int(sys.argv[4]) << 20
    random = np.random.default_rng(1)
    warm = de.Variable(dim=DIM, name="warm")
    warm.upsert(np.arange(BATCH), np.ones([BATCH, DIM], np.float32))
    trainer(warm)(tf.constant(ranks(BATCH, random, BATCH)))
    before = resident()
    table = de.Variable(dim=DIM, name="t", tier=de.DiskTier(directory, memory_bytes=memory))
    step = trainer(table)
    step(tf.constant(ranks(rows, random, BATCH)))  # adds Adam's slots
    for begin in range(0, rows, BATCH):
        ids = np.arange(begin, min(rows, begin + BATCH))
        table.upsert(ids, np.ones([len(ids), DIM], np.float32))
    started = time.perf_counter()
    printed, longest, steps = started, 0.0, 0
    while printed - started < 60 * minutes:
        ids = tf.constant(ranks(rows, random, BATCH))
        begin = time.perf_counter()
        step(ids)
        end = time.perf_counter()
        longest, steps = max(longest, end - begin), steps + 1
        if end - printed < 60 and end - started < 60 * minutes:
            continue
        tier = table.stats()["tier"]
        bound = memory + tier["filter_bytes"]
        print(
            f"{(end - started) / 60:5.1f} min: resident {(resident() - before) / 2**20:.0f} MiB, "
            f"peak {(resident('VmHWM') - before) / 2**20:.0f}, bound {bound / 2**20:.0f}; "
            f"disk {tier['disk_bytes'] / 2**30:.2f} GiB, {int(table.size()):,} rows; "
            f"{steps} steps, {1e3 * (end - printed) / steps:.0f} ms each, longest "
            f"{1e3 * longest:.0f}",
            flush=True,
        )
        printed, longest, steps = end, 0.0, 0


if __name__ == "__main__":
    main()
