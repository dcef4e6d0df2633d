"""Exports a recommender for the gateway's benchmarks: `python make_recommender.py FOLDER`.

The model has two tables of 100,000 rows of 64 numbers, and three dense layers over a user's and an
item's row.
"""

import itertools
import sys
from pathlib import Path

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import de_core as de

ROWS, DIM = 100_000, 64


class Recommender(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = (
            de.get_variable(name, tf.int64, tf.float32, dim=DIM, initializer=0.0)
            for name in ("user", "item")
        )
        for table in (self.user, self.item):
            table.upsert(tf.range(ROWS, dtype=tf.int64), tf.random.normal([ROWS, DIM]))
        sizes = (2 * DIM, 128, 64, 1)
        self.layers = [
            tf.Variable(tf.random.normal(shape) * 0.1) for shape in itertools.pairwise(sizes)
        ]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, "user"),
            tf.TensorSpec([None], tf.int64, "item"),
        ]
    )
    def score(self, user, item):
        rows = [de.embedding_lookup(self.user, user), de.embedding_lookup(self.item, item)]
        hidden = tf.concat(rows, axis=-1)
        for layer in self.layers:
            hidden = tf.nn.relu(tf.matmul(hidden, layer))
        return {"score": tf.squeeze(hidden, -1)}


if __name__ == "__main__":
    model = Recommender()
    de.export(model, sys.argv[1], signatures=model.score)
