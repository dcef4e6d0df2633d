"""One training step, compared with a dense variable and with read-modify-write of rows.

A step is lookup, gradient and Adam. The gradient of the rows comes from the layers above, whose
cost is not measured. Every step of a round has other ids.

The dense peer reads its rows with `tf.gather`. Keras's own Adam moves all rows in each step, so the
peer uses a lazy Adam: it sums equal ids with `tf.unique` and `tf.math.unsorted_segment_sum`, then
reads only the touched rows and slots with `tf.gather` and writes them with `scatter_nd_update`.

The other peer works like tfra, with this library's methods. Rows and slots are in three tables.
The forward pass looks up all ids. The peer sums the gradient by id, as the dense peer does, looks
up rows and slots of the distinct ids, updates them as dense tensors, and upserts them. (tfra's
optimizer also reads the rows again before the update. It keeps them in variables between its tables
and the update; docs/reference/benchmarks.md gives the cost.)
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from bench import peers
from bench.rounds import Bar, Rounds

pytestmark = pytest.mark.benchmark

BATCH, STEPS = 16384, 32
RATE, BETA_1, BETA_2, EPSILON = 0.001, 0.9, 0.999, 1e-7
#: Our step against each peer: the goal, and the stretch goal.
BARS = {"dense": (1.0, 1.5), "read-modify-write": (5.0, 8.0)}


def zipf_ranks(rows: int, count: int) -> np.ndarray:
    """Draws `count` numbers below `rows`; rank k has a probability of about k ** -1.05."""
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -1.05
    return np.random.default_rng(0).choice(rows, size=count, p=weights / weights.sum())


def summed(gradient: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
    ids, positions = tf.unique(gradient.indices)
    return ids, tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(ids))


def adam_step(gradient, rows, m, v, step):
    """Returns rows and slots after one Adam update."""
    power_1, power_2 = tf.pow(BETA_1, step), tf.pow(BETA_2, step)
    m += (gradient - m) * (1 - BETA_1)
    v += (tf.square(gradient) - v) * (1 - BETA_2)
    alpha = RATE * tf.sqrt(1 - power_2) / (1 - power_1)
    return rows - m * alpha / (tf.sqrt(v) + EPSILON), m, v


class Ours:
    name = "de_core"

    def __init__(self, keys: np.ndarray, dim: int) -> None:
        self.table = de.Variable(dim=dim, name=f"step_{dim}", init_size=len(keys))
        fill(self.table, keys, dim)
        self.optimizer = de.DynamicEmbeddingOptimizer(
            keras.optimizers.Adam(RATE, BETA_1, BETA_2, EPSILON)
        )
        self.optimizer.build(self.table.trainable_variables)

    def step(self, ids: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(self.table, ids)
        variables = self.table.trainable_variables
        self.optimizer.apply(tape.gradient(rows, variables, above), variables)
        return rows[0]

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.table.lookup(ids)


class Dense:
    """A variable with all rows, read with `tf.gather`, and a lazy Adam."""

    name = "dense"

    def __init__(self, keys: np.ndarray, dim: int) -> None:
        self.weights = tf.Variable(peers.rows_of(keys, dim) / 1000)
        self.m, self.v = (tf.Variable(tf.zeros([len(keys), dim])) for _ in range(2))
        self.count = tf.Variable(0.0)

    def step(self, ids: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = tf.gather(self.weights, ids)
        unique, gradient = summed(tape.gradient(rows, self.weights, above))
        step = self.count.assign_add(1.0)
        parts = [tf.gather(each, unique) for each in (self.weights, self.m, self.v)]
        updated = adam_step(gradient, *parts, step)
        for variable, new in zip((self.weights, self.m, self.v), updated, strict=True):
            variable.scatter_nd_update(unique[:, None], new)
        return rows[0]

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.weights, ids)


class ReadModifyWrite:
    """Rows and slots in separate tables, used through this library's methods."""

    name = "read-modify-write"

    def __init__(self, keys: np.ndarray, dim: int) -> None:
        self.tables = [
            de.Variable(dim=dim, name=f"{part}_{dim}", init_size=len(keys), trainable=False)
            for part in ("row", "m", "v")
        ]
        fill(self.tables[0], keys, dim)
        for table in self.tables[1:]:
            fill(table, keys, dim, zeros=True)
        self.count = tf.Variable(0.0)

    def step(self, ids: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
        looked_up = self.tables[0].lookup(ids)
        unique, gradient = summed(tf.IndexedSlices(above, ids))
        rows, m, v = (each.lookup(unique) for each in self.tables)
        step = self.count.assign_add(1.0)
        for each, new in zip(self.tables, adam_step(gradient, rows, m, v, step), strict=True):
            each.upsert(unique, new)
        return looked_up[0]

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.tables[0].lookup(ids)


def fill(table: de.Variable, keys: np.ndarray, dim: int, zeros: bool = False) -> None:
    for at in range(0, len(keys), peers.BATCH):
        part = keys[at : at + peers.BATCH]
        rows = np.zeros([len(part), dim], np.float32) if zeros else peers.rows_of(part, dim) / 1000
        table.upsert(tf.constant(part), tf.constant(rows))


@pytest.mark.parametrize("dim", [16, 64])
def test_a_training_step_reaches_its_goals(dim, rows, rounds, report):
    keys = peers.random_keys(rows)
    ranks = zipf_ranks(rows, STEPS * BATCH).reshape(STEPS, BATCH)
    above = tf.constant(np.random.default_rng(1).normal(size=[BATCH, dim]), tf.float32)
    measures, results = Rounds(), {}
    for kind in (Ours, Dense, ReadModifyWrite):
        trainer = kind(keys, dim)
        inputs = tf.constant(ranks if kind is Dense else keys[ranks])

        @tf.function(input_signature=[tf.TensorSpec([STEPS, BATCH], tf.int64)])
        def run(ids, trainer=trainer):
            rows = above[0]
            for i in tf.range(STEPS):
                rows = trainer.step(ids[i], above)
            return rows

        run(inputs)
        results[kind.name] = trainer.rows(inputs[0, :256]).numpy()
        measures.add(kind.name, STEPS * BATCH, lambda run=run, inputs=inputs: run(inputs))
    for name, values in results.items():
        np.testing.assert_allclose(values, results["dense"], rtol=1e-4, atol=1e-6, err_msg=name)
    measures.run(rounds)
    cells = {"dim": dim, "rows": len(keys), "ids": BATCH}
    report.keep("step with Adam", f"dim {dim}, batch {BATCH}, rows {len(keys)}", measures)
    cells |= {
        f"{name} (ms)": 1e3 * BATCH / measures.measured[name].rate() / 1e6 for name in results
    }
    for name, (bar, stretch) in BARS.items():
        ratio = measures.ratio("de_core", name)
        cells[f"/ {name}"] = ratio
        cells[f"/ {name} (CPU)"] = measures.ratio("de_core", name, "cpu")
        report.bars.append(Bar(f"training step / {name}, dim {dim}", ratio, bar, stretch))
    report.row("Training step with Adam, Zipf(1.05) ids (milliseconds)", cells)
    for name, (bar, _) in BARS.items():
        assert measures.ratio("de_core", name) >= bar / 2, name
