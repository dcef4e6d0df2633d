"""Slots have the methods of `tfra`'s slot tables."""

import numpy as np
import tensorflow as tf

from de_core import tfra
from de_core.base.keras import keras

de = tfra.dynamic_embedding


def test_a_slot_can_be_written_and_read_per_shard():
    table = de.Variable(dim=2, name="with_slots", devices=["/CPU:0"] * 2, initializer=0.0)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1))
    keys = tf.range(6, dtype=tf.int64)
    optimizer.apply_gradients([(tf.IndexedSlices(tf.ones([6, 2]), keys), *table.variables)])
    first, second = sorted(table.get_slot_variables(optimizer), key=lambda slot: slot.name)
    assert (first.name, second.name) == ("with_slots/m", "with_slots/v")
    first.upsert([1, 99], [[5.0, 6.0], [7.0, 8.0]])
    assert first.lookup([1])[0].numpy().tolist() == [5, 6]
    assert table.size() == 6  # key 99 has no row
    assert sorted(np.concatenate([each.export()[0] for each in first.tables])) == list(range(6))
    for slot, shard in zip(first.tables, table.tables, strict=True):
        assert slot.size() == shard.size()
        slot.insert(shard.export()[0], tf.fill([shard.size(), 2], 3.0))
    assert np.all(first.lookup(keys) == 3)


def test_a_layer_has_the_slots_of_its_optimizers():
    layer = de.keras.layers.Embedding(2, name="slotted")
    assert layer.optimizer_vars == []
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0, momentum=0.9))
    gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([7], tf.int64))
    optimizer.apply_gradients([(gradient, *layer.params.variables)])
    [slot] = layer.optimizer_vars
    assert slot.lookup([7]).numpy().tolist() == [[-1, -1]]
