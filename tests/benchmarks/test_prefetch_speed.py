"""Training from a disk with `de.prefetch_rows`, compared with training without it.

Each batch has new ids under Zipf(1.05); memory is a tenth of the table. A step is lookup, gradient
and Adam, and some work of dense layers. The disk can read the next rows during that work.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.benchmarks.rounds import Bar, Rounds
from tests.support.long_run import ranks

pytestmark = pytest.mark.benchmark

DIM, BATCH, STEPS = 64, 8192, 12
ROW_BYTES = 800
#: Steps with prefetching against steps without: the goal, and the stretch goal.
BAR, STRETCH = 1.1, 1.4


class Trainer:
    def __init__(self, name: str, folder, rows: int, prefetches: bool) -> None:
        tier = de.DiskTier(str(folder), memory_bytes=rows * ROW_BYTES // 10)
        self.table = de.Variable(dim=DIM, name=name, tier=tier)
        self.rows, self.prefetches = rows, prefetches
        self.random = np.random.default_rng(1)
        self.weights = tf.Variable(tf.random.stateless_normal([DIM, 1024], [1, 2], 0.0, 0.01))
        for begin in range(0, rows, BATCH):
            ids = np.arange(begin, min(rows, begin + BATCH))
            self.table.upsert(ids, np.ones([len(ids), DIM], np.float32))
        self.optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
        self.optimizer.build(self.table.trainable_variables)
        self.step = tf.function(self._step)

    def _step(self, ids: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(de.embedding_lookup(self.table, ids) @ self.weights)
            loss = tf.reduce_mean(tf.square(hidden))
        variables = [*self.table.trainable_variables, self.weights]
        *gradients, dense = tape.gradient(loss, variables)
        self.optimizer.apply(gradients, variables[:-1])
        self.weights.assign_sub(1e-3 * dense)

    def train(self) -> None:
        ids = ranks(self.rows, self.random, STEPS * BATCH)
        batches = tf.data.Dataset.from_tensor_slices(ids).batch(BATCH)
        if self.prefetches:
            batches = batches.apply(de.prefetch_rows(self.table, lambda ids: ids, batches=1))
        for batch in batches:
            self.step(batch)


def test_prefetching(tmp_path, rows, rounds, report):
    measures = Rounds()
    trainers = {}
    for name, prefetches in (("plain", False), ("prefetched", True)):
        trainer = Trainer(name, tmp_path / name, rows, prefetches)
        trainers[name] = trainer
        measures.add(name, STEPS * BATCH, trainer.train)
    measures.run(rounds)
    tiers = {name: trainer.table.stats()["tier"] for name, trainer in trainers.items()}
    assert tiers["prefetched"]["rows_in"] == tiers["plain"]["rows_in"] > 0
    wall, cpu = (measures.ratio("prefetched", "plain", clock) for clock in ("wall", "cpu"))
    report.keep("prefetch", f"{rows} rows", measures)
    report.row(
        "Training from a disk, Mids/s",
        {
            "rows": rows,
            "plain": measures.measured["plain"].rate(),
            "prefetched": measures.measured["prefetched"].rate(),
            "ratio": wall,
            "CPU ratio": cpu,
        },
    )
    report.bars.append(Bar("prefetched / plain", wall, BAR, STRETCH))
    assert wall >= BAR / 2
