"""Writes what the real wheel does where `de_core` differs on purpose."""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de


def step(make, table, ids):
    optimizer = de.DynamicEmbeddingOptimizer(make())
    with tf.GradientTape() as tape:
        rows, wrapper = de.embedding_lookup(table, ids, name=table.name, return_trainable=True)
        loss = tf.reduce_sum(rows)
    optimizer.apply_gradients([(tape.gradient(loss, wrapper), wrapper)])
    return [slot.export()[1].numpy().max() for slot in table.get_slot_variables(optimizer)]


def main():
    ids = tf.constant([7, 7], tf.int64)
    sgd, adagrad = tf.keras.optimizers.SGD, tf.keras.optimizers.Adagrad
    found = {}
    table = de.get_variable("repeated", dim=1, initializer=0.0)
    step(lambda: sgd(1.0), table, ids)
    found["a row whose id is twice in a batch"] = table.lookup(ids[:1]).numpy().item()
    table = de.get_variable("adagrad", dim=1, initializer=0.0)
    slots = step(lambda: adagrad(1.0, initial_accumulator_value=0.1), table, ids[:1])
    found["accumulator after a gradient of 1"] = float(slots[0])
    table = de.get_variable("listed", dim=2, initializer=[1.0, 2.0])
    found["row of the initializer [1, 2]"] = table.lookup(ids[:1]).numpy().ravel().tolist()
    table = de.get_variable("text", value_dtype=tf.string, dim=1, initializer="unknown")
    found["row of the initializer unknown"] = table.lookup(ids[:1]).numpy().item().decode()
    table = de.get_variable("normed", dim=1, initializer=3.0)
    rows = de.embedding_lookup_unique(table, ids, name="normed", max_norm=0.5)
    found["norm with max_norm=0.5"] = float(rows[0, 0])
    random = tf.keras.initializers.RandomNormal()
    table = de.get_variable("placed", dim=4, initializer=random)
    first, second = (table.lookup(tf.constant(keys, tf.int64)) for keys in ([3, 5], [5, 3]))
    found["rows follow the ids"] = bool(np.array_equal(first, second[::-1]))
    layers = [de.keras.layers.Embedding(2) for _ in range(2)]
    layers[0].params.upsert(ids[:1], tf.ones([1, 2]))
    found["rows of the second layer of the default name"] = int(layers[1].params.size())
    found["shape of a layer with a combiner"] = layers[0](ids[None, :]).shape.as_list()
    table = de.get_variable(
        "restricted",
        dim=1,
        devices=["/CPU:0"] * 2,
        restrict_policy=de.FrequencyRestrictPolicy,
    )
    even = tf.range(0, 16, 2, tf.int64)
    table.upsert(even, tf.zeros([8, 1]))
    table.restrict_policy.apply_update(even)
    found["sizes of shards of even keys"] = [int(table.size(shard)) for shard in range(2)]
    table.restrict(4)
    found["rows after restrict(4)"] = int(table.size())
    Path(sys.argv[1]).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
