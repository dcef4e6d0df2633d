"""Inserts new keys into an empty table with the op; compares with TensorFlow's hash tables."""

import numpy as np
import pytest
import tensorflow as tf

from bench import peers
from bench.rounds import Bar, Rounds

pytestmark = pytest.mark.benchmark

BATCH = 16384
BARS = {"MutableHashTable": (4, 8), "DenseHashTable": (1.5, 3)}


class FromEmpty:
    """Fills a new table of one kind, batch by batch."""

    def __init__(self, kind, dim: int, keys: np.ndarray) -> None:
        self.kind = kind
        self.dim = dim
        whole = keys[: len(keys) // BATCH * BATCH].reshape(-1, BATCH)
        self.batches = [tf.constant(part) for part in whole]
        self.values = tf.ones([BATCH, dim])
        self.table = None
        self.insert = None

    def prepare(self) -> None:
        """Creates the table, compiles the function, touches and frees memory for the rows."""
        self.table = self.insert = None
        memory = np.empty(len(self.batches) * BATCH * (self.dim * 4 + 16) * 2, np.uint8)
        memory[::4096] = 1
        del memory
        self.table = table = self.kind(self.dim)

        @tf.function(
            input_signature=[
                tf.TensorSpec([BATCH], tf.int64),
                tf.TensorSpec([BATCH, self.dim], tf.float32),
            ]
        )
        def insert(keys, values):
            table.insert(keys, values)

        self.insert = insert.get_concrete_function()

    def run(self) -> None:
        for keys in self.batches:
            self.insert(keys, self.values)

    def check(self) -> None:
        np.testing.assert_array_equal(self.table.lookup(self.batches[-1]), self.values)


@pytest.mark.parametrize("dim", [16, 64])
def test_insert_op_reaches_its_goals(dim, rows, rounds, report):
    keys = peers.random_keys(max(rows, BATCH))
    measures = Rounds()
    fills = [FromEmpty(kind, dim, keys) for kind in peers.HASH_TABLES]
    for fill in fills:
        fill.prepare()
        fill.run()
        fill.check()
        count = len(fill.batches) * BATCH
        measures.add(fill.kind.name, count, fill.run, before=fill.prepare)
    measures.run(max(rounds // 3, 1), warm_up=0)
    cells = {"dim": dim, "rows": count, "batch": BATCH}
    report.keep("insert op, new keys", f"dim {dim}, batch {BATCH}, rows {count}", measures)
    cells |= {kind.name: measures.measured[kind.name].rate() for kind in peers.HASH_TABLES}
    for name, (bar, stretch) in BARS.items():
        ratio = measures.ratio("de_core", name)
        cells[f"/ {name}"] = ratio
        report.bars.append(Bar(f"insert op / {name}, dim {dim}", ratio, bar, stretch))
    report.row("Insert op, new keys from empty (million/s of wall time)", cells)
    for name, (bar, _) in BARS.items():
        assert measures.ratio("de_core", name) >= bar / 2, name
