"""Trains a table on ids under Zipf's law, and tells the memory of this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import de_core as de

DIM = 64


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
