"""Exports a model with real embedding tables: `python -m tests.server.make_tables FOLDER VALUE`."""

import sys

import tensorflow as tf

import de_core as de

DIM = 4


class Tower(tf.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.user = de.get_variable("user", tf.int64, tf.float32, dim=DIM, initializer=0.5)
        self.item = de.get_variable("item", tf.string, tf.float32, dim=DIM, initializer=0.0)
        self.user.upsert(tf.constant([7, -1], tf.int64), tf.fill([2, DIM], value))
        self.item.upsert(tf.constant([b"lamp"]), tf.fill([1, DIM], 1.0))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, "user"),
            tf.TensorSpec([None], tf.string, "item"),
        ]
    )
    def score(self, user, item):
        rows = de.embedding_lookup(self.user, user) * de.embedding_lookup(self.item, item)
        return {"score": tf.reduce_sum(rows, axis=-1)}


if __name__ == "__main__":
    model = Tower(float(sys.argv[2]))
    de.export(model, sys.argv[1], signatures=model.score)
