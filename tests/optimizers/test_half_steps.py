"""Steps on float16 and bfloat16 rows compute in float32. See also test_exact.py."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

MANY = tf.fill([1024], tf.constant(7, tf.int64))
HALVES = ("float16", "bfloat16")


def table_of(dtype, row=1.0, dim=1):
    table = de.Variable(value_dtype=dtype, dim=dim, initializer=0.0)
    table.upsert([7], tf.fill([1, dim], tf.constant(row, dtype)))
    return table


def row_of(table):
    return tf.cast(table.lookup([7]), tf.float32).numpy()[0]


def step(table, optimizer, ids=MANY, factor=1.0):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup(ids) * tf.constant(factor, table.value_dtype))
    optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("setting", ["clipnorm", "global_clipnorm"])
def test_the_norm_of_large_gradients_is_finite(dtype, setting):
    table = table_of(dtype, dim=64)
    optimizer = keras.optimizers.SGD(8.0, **{setting: 1.0})
    step(table, de.DynamicEmbeddingOptimizer(optimizer), MANY[:1], factor=300.0)
    # Each of 64 equal numbers is 1/8 of the norm.
    np.testing.assert_allclose(row_of(table), np.zeros(64), atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("unique", [False, True])
def test_the_gradient_of_a_table_is_float32(dtype, unique):
    table = table_of(dtype)
    look_up = de.embedding_lookup_unique if unique else de.embedding_lookup

    def gradient(max_norm):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(look_up(table, MANY, max_norm=max_norm))
        return tape.gradient(loss, table.trainable_variables)[0]

    for found in (gradient(None), tf.function(gradient)(None), gradient(8.0)):
        assert found.dtype == tf.float32
        assert float(tf.reduce_sum(found.values)) == 1024


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_the_gradient_of_pooled_halves_is_not_rounded(combiner):
    table = table_of("bfloat16")
    ids = tf.RaggedTensor.from_row_lengths(tf.tile(MANY[:1], [1025]), [1025])
    layer = de.layers.EmbeddingCollection(
        {"ids": de.FeatureConfig("ids", de.TableConfig("t", 1, value_dtype="bfloat16"), combiner)}
    )
    with tf.GradientTape(persistent=True) as tape:
        looked_up = tf.reduce_sum(de.embedding_lookup_sparse(table, ids, None, combiner=combiner))
        collected = tf.reduce_sum(layer({"ids": ids})["ids"])
    for loss, trained in ((looked_up, table), (collected, layer.tables["t"])):
        gradient = tape.gradient(loss, trained.trainable_variables)[0]
        wanted = 1025 if combiner == "sum" else 1
        np.testing.assert_allclose(gradient.values, [[wanted]], rtol=1e-5)


def test_the_norm_of_a_float16_row_does_not_overflow():
    table = table_of("float16", row=300.0, dim=4)
    ids = tf.RaggedTensor.from_row_lengths(MANY[:1], [1])
    rows = [
        de.embedding_lookup(table, MANY[:1], max_norm=2.0),
        de.embedding_lookup_unique(table, MANY[:1], max_norm=2.0),
        de.embedding_lookup_sparse(table, ids, None, max_norm=2.0),
    ]
    assert [each.numpy().tolist() for each in rows] == [[[1.0] * 4]] * 3


@pytest.mark.parametrize("dtype", HALVES)
def test_a_loss_scale_is_divided_out_in_float32(dtype):
    table = table_of(dtype)
    inner = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(2.0**20))
    optimizer = de.LossScaleOptimizer(inner, initial_scale=2.0**15)
    with tf.GradientTape() as tape:
        loss = tf.cast(tf.reduce_sum(table.lookup(MANY[:1])), tf.float32) * 2.0**-26
        loss = optimizer.scale_loss(loss)
    optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)
    assert row_of(table) == 1 - 2.0**-6  # 2^-26 itself is no number of float16
