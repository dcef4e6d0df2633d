"""Steps on 16-bit rows compute in float32, and tables with bfloat16 slots train like others.

See also test_exact.py.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.optimizers.test_steps import own

IDS = np.arange(400, dtype=np.int64)
DIM = 16


def new_table(slot_dtype):
    return de.Variable(dim=DIM, name="half", slot_dtype=slot_dtype)


def train(table, optimizer, steps):
    for step in range(steps):
        values = np.random.default_rng(step).normal(size=[len(IDS), DIM]).astype(np.float32)
        gradient = tf.IndexedSlices(tf.constant(values), tf.constant(IDS))
        optimizer.apply_gradients([(gradient, table.trainable_variables[0])])


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
def test_the_penalty_on_rows_is_summed_in_float32(dtype):
    regularizer = keras.regularizers.L2(1.0)
    table = de.Variable(value_dtype=dtype, dim=64, initializer=1.0, regularizer=regularizer)
    layer = de.layers.Embedding(
        64, value_dtype=dtype, initializer="ones", embeddings_regularizer=regularizer
    )
    ids = tf.range(2000, dtype=tf.int64)
    with tf.GradientTape() as tape:
        loss = table.regularization_loss(ids)
        layer(ids)
    assert float(loss) == float(layer.losses[0]) == 128_000
    (gradient,) = tape.gradient(loss, table.trainable_variables)
    assert gradient.dtype == de.Variable(value_dtype=dtype).regularization_loss(ids).dtype
    assert gradient.dtype == tf.float32
    np.testing.assert_array_equal(gradient.values, tf.fill([2000, 64], 2.0))


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
