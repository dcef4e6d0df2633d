"""Tables with bfloat16 slots train like tables with float32 slots, in less memory."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.optimizers.test_steps import own

IDS = np.arange(400, dtype=np.int64)
DIM = 16


def new_table(slot_dtype=None, name="half", **options):
    return de.Variable(dim=DIM, name=name, slot_dtype=slot_dtype, **options)


def train(table, optimizer, steps, first=0):
    for step in range(first, first + steps):
        values = np.random.default_rng(step).normal(size=[len(IDS), DIM]).astype(np.float32)
        gradient = tf.IndexedSlices(tf.constant(values), tf.constant(IDS))
        optimizer.apply([gradient], [table])


def slots_of(table, optimizer):
    return {
        each.slot_name: each.lookup(IDS).numpy() for each in table.get_slot_variables(optimizer)
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.01),
        lambda: keras.optimizers.SGD(0.01, momentum=0.9),
        lambda: keras.optimizers.Adagrad(0.05),
        lambda: de.optimizers.RowwiseAdam(0.01),
        lambda: tf.compat.v1.train.AdamOptimizer(0.01),
    ],
    ids=["adam", "momentum", "adagrad", "rowwise adam", "tf1 adam"],
)
def test_half_slots_train_like_float32_slots(make):
    tables, optimizers = [], []
    for slot_dtype in (None, tf.bfloat16):
        optimizer = de.DynamicEmbeddingOptimizer(make())
        table = new_table(slot_dtype)
        if not hasattr(optimizer, "apply"):
            optimizer.apply = lambda gradients, tables, own=optimizer: own.apply_gradients(
                [(gradients[0], tables[0].trainable_variables[0])]
            )
        train(table, optimizer, 40)
        tables.append(table)
        optimizers.append(optimizer)
    full, half = (slots_of(*pair) for pair in zip(tables, optimizers, strict=True))
    assert list(full) == list(half)
    for name, wanted in full.items():
        got = half[name]
        scale = np.abs(wanted).mean()
        assert np.abs(got - wanted).mean() < 0.02 * scale, name
        # No element is biased: the errors of 6,400 elements cancel out.
        assert abs((got - wanted).mean()) < 0.001 * scale, name
        if wanted.shape[1] == DIM:
            np.testing.assert_array_equal(got, tf.cast(tf.cast(got, tf.bfloat16), tf.float32))
    moved = np.abs(tables[0].lookup(IDS)).mean()
    assert np.abs(tables[1].lookup(IDS) - tables[0].lookup(IDS)).mean() < 0.02 * moved


@pytest.mark.parametrize(("before", "after"), [(None, tf.bfloat16), (tf.bfloat16, None)])
def test_checkpoints_are_converted_to_the_slots_of_the_table(tmp_path, before, after):
    old = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))
    table = new_table(before)
    train(table, old, 3)
    path = tf.train.Checkpoint(table=table, optimizer=old).write(tmp_path / "c")
    new = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))
    restored = new_table(after)
    tf.train.Checkpoint(table=restored, optimizer=new).restore(path)
    others = tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([10**6], tf.int64))
    new.apply([others], [restored])
    got = slots_of(restored, new)
    for name, values in slots_of(table, old).items():
        nearest = tf.cast(tf.cast(values, tf.bfloat16), tf.float32)
        np.testing.assert_array_equal(got[name], nearest)
    np.testing.assert_array_equal(restored.lookup(IDS), table.lookup(IDS))


def test_layers_and_configurations_pass_the_dtype_on():
    layer = de.layers.Embedding(4, slot_dtype=tf.bfloat16, optimizer="adam", name="e")
    config = json.loads(json.dumps(layer.get_config()))
    assert config["slot_dtype"] == "bfloat16"
    again = de.layers.Embedding.from_config(config)
    assert again.table._table.spec.slot_dtype == tf.bfloat16
    declared = de.TableConfig("items", 4, slot_dtype="bfloat16")
    copy = de.TableConfig.from_config(json.loads(json.dumps(declared.get_config())))
    assert copy.new_table(trainable=True)._table.spec.slot_dtype == tf.bfloat16
    shared = de.get_variable("shared_half", dim=4, slot_dtype=tf.bfloat16)
    with pytest.raises(ValueError, match="slot_dtype='float32', but it exists with 'bfloat16'"):
        de.get_variable("shared_half", dim=4)
    assert shared.size() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot_dtype": "int8"}, "`slot_dtype` must be one of float32, bfloat16.*int8"),
        ({"slot_dtype": "float64"}, "value_dtype=float32. Leave out `slot_dtype`"),
        ({"slot_dtype": "bfloat16", "value_dtype": tf.float64}, "value_dtype=float64"),
        ({"slot_dtype": "bfloat16", "value_dtype": tf.int64}, "value_dtype=int64"),
    ],
)
def test_other_dtypes_are_refused(options, message):
    with pytest.raises(TypeError, match=message):
        de.Variable(dim=2, **options)


def test_an_optimizer_without_a_rule_refuses_half_slots():
    with pytest.warns(UserWarning, match="has no rule"):
        optimizer = de.DynamicEmbeddingOptimizer(own(keras.optimizers.SGD)())
    with pytest.raises(NotImplementedError, match="make the table without `slot_dtype`"):
        train(new_table(tf.bfloat16), optimizer, 1)
