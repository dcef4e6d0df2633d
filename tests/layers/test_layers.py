"""Tests the layers, alone and in models, with the Keras of the process."""

import json

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras
from tests.support.applies import applies_if

VALUES = np.random.default_rng(0).normal(size=[10, 2]).astype(np.float32)


@keras.saving.register_keras_serializable(package="de_core_tests")
def field_of(ids):
    return tf.cast(ids, tf.int64) % 3


@keras.saving.register_keras_serializable(package="de_core_tests")
def middle(rows):
    return (tf.reduce_max(rows, 0) + tf.reduce_min(rows, 0)) / 2


def filled(layer):
    layer.table.upsert(np.arange(10), VALUES)
    return layer


def int64(values):
    return tf.constant(values, tf.int64)


IDS = int64([[1, 2]])
KINDS = {
    "dense": int64([[[1, 2], [2, 3]], [[4, 4], [5, 9]]]),
    "ragged": tf.ragged.constant([[[1, 2], [2, 3]], [[4, 4, 5, 9]]], dtype=tf.int64),
    "sparse": tf.SparseTensor(
        [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 2], [1, 1, 0], [1, 1, 1], [1, 2, 0]],
        int64([1, 2, 2, 3, 4, 4, 5, 9]),
        [2, 3, 3],
    ),
}
REDUCTIONS = {
    "sum": np.sum,
    "mean": np.mean,
    "sqrtn": lambda rows, axis: rows.sum(axis) / len(rows) ** 0.5,
    "min": np.min,
    "max": np.max,
    "prod": np.prod,
    "std": np.std,
    middle: lambda rows, axis: (rows.max(axis) + rows.min(axis)) / 2,
}


@pytest.mark.parametrize("combiner", REDUCTIONS)
def test_squashed_rows_are_those_of_all_ids_of_an_example(combiner):
    layer = filled(de.layers.SquashedEmbedding(2, combiner=combiner))
    wanted = [REDUCTIONS[combiner](VALUES[ids], axis=0) for ids in ([1, 2, 2, 3], [4, 4, 5, 9])]
    for ids in KINDS.values():
        rows = layer(ids)
        assert rows.shape == [2, 2]
        np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(int64([1, 2, 2, 3])), wanted[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("combiner", REDUCTIONS)
def test_padding_and_empty_rows_are_left_out(combiner):
    layer = filled(de.layers.Embedding(2, combiner=combiner, mask_key=0))
    wanted = REDUCTIONS[combiner](VALUES[[1, 7]], axis=0)
    rows = layer(int64([[1, 0, 7], [0, 0, 0]]))
    np.testing.assert_allclose(rows, [wanted, [0, 0]], rtol=1e-5, atol=1e-6)
    squashed = filled(de.layers.SquashedEmbedding(2, combiner=combiner, mask_key=0))
    np.testing.assert_allclose(
        squashed(tf.ragged.constant([[1, 0, 7], []], dtype=tf.int64)), rows, rtol=1e-6
    )


MASKS = {
    "dense": (int64([[1, 0, 7], [0, 2, 3]]), tf.constant([[True, True, False], [True] * 3])),
    "ragged": (
        tf.ragged.constant([[1, 0, 7], [0, 2, 3]], dtype=tf.int64),
        tf.ragged.constant([[True, True, False], [True, True, True]]),
    ),
}
MASKS["sparse"] = tuple(each.to_sparse() for each in MASKS["ragged"])


@pytest.mark.each_choice
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("combiner", REDUCTIONS)
def test_a_mask_and_padding_leave_out_the_ids_of_both(combiner, kind):
    ids, mask = MASKS[kind]
    layer = filled(de.layers.Embedding(2, combiner=combiner, mask_key=0))
    wanted = [REDUCTIONS[combiner](VALUES[kept], axis=0) for kept in ([1], [2, 3])]
    with tf.GradientTape() as tape:
        rows = layer(ids, mask=mask)
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)
    (gradient,) = tape.gradient(rows, layer.table.trainable_variables)
    assert sorted(gradient.indices.numpy()) == [1, 2, 3]
    for mask_key, given, kept in ((0, None, [[1, 7], [2, 3]]), (None, mask, [[1, 0], [0, 2, 3]])):
        layer = filled(de.layers.Embedding(2, combiner=combiner, mask_key=mask_key))
        wanted = [REDUCTIONS[combiner](VALUES[each], axis=0) for each in kept]
        np.testing.assert_allclose(layer(ids, mask=given), wanted, rtol=1e-5, atol=1e-6)


def test_the_mask_of_rows_counts_neither_masked_ids_nor_padding():
    ids, mask = MASKS["dense"]
    layer = de.layers.Embedding(2, mask_key=0)
    both = [[True, False, False], [False, True, True]]
    np.testing.assert_array_equal(layer.compute_mask(ids, mask), both)
    np.testing.assert_array_equal(layer.compute_mask(ids), ids != 0)
    np.testing.assert_array_equal(de.layers.Embedding(2).compute_mask(ids, mask), mask)


def test_pooled_rows_keep_outer_dimensions():
    layer = filled(de.layers.Embedding(2, combiner="sum"))
    np.testing.assert_allclose(
        layer(KINDS["dense"]), VALUES[KINDS["dense"].numpy()].sum(2), rtol=1e-5
    )
    rows = layer(KINDS["ragged"])
    assert rows.to_list()[0][1] == pytest.approx((VALUES[2] + VALUES[3]).tolist())
    assert layer(KINDS["sparse"]).shape == [2, 3, 2]
    with pytest.raises(ValueError, match="`combiner` must be set for sparse ids"):
        de.layers.Embedding(2).call(KINDS["sparse"])


def test_with_unique_and_max_norm():
    ids = int64([[3, 3], [4, 3]])
    plain = filled(de.layers.Embedding(2, max_norm=0.5))
    unique = filled(de.layers.Embedding(2, max_norm=0.5, with_unique=True))
    with tf.GradientTape() as tape:
        rows = unique(ids)
    np.testing.assert_allclose(rows, plain(ids), rtol=1e-6)
    assert np.all(np.linalg.norm(rows, axis=-1) < 0.5 + 1e-6)
    (gradient,) = tape.gradient(rows, unique.table.trainable_variables)
    assert sorted(gradient.indices.numpy()) == [3, 4]


def test_field_wise_rows_are_pooled_by_field():
    layer = filled(de.layers.FieldWiseEmbedding(2, 3, field_of))
    for ids in (int64([[1, 4, 0], [3, 9, 5]]), tf.ragged.constant([[1, 4, 0], [3, 9, 5]])):
        rows = layer(tf.cast(ids, tf.int64))
        assert rows.shape == [2, 3, 2]
        zeros = [0, 0]
        np.testing.assert_allclose(
            rows,
            [
                [VALUES[0], VALUES[1] + VALUES[4], zeros],
                [VALUES[3] + VALUES[9], zeros, VALUES[5]],
            ],
            rtol=1e-5,
        )
    mean = filled(de.layers.FieldWiseEmbedding(2, 3, field_of, combiner="mean", mask_key=4))
    np.testing.assert_allclose(mean(int64([[1, 4, 7]]))[0, 1], VALUES[[1, 7]].mean(0), rtol=1e-5)


def test_fields_of_string_ids():
    layer = de.layers.FieldWiseEmbedding(
        1, 2, tf.strings.length, tf.string, initializer=1.0, combiner="sum"
    )
    assert layer(tf.constant([["a", "", "b"]])).numpy().tolist() == [[[1.0], [2.0]]]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"fields in \[0, 2\)"):
        layer(tf.constant([["long"]]))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: de.layers.Embedding(2, combiner="median"), ValueError, "combiner='median'"),
        (lambda: de.layers.SquashedEmbedding(2, combiner=None), ValueError, "must not be None"),
        (lambda: de.layers.FieldWiseEmbedding(2, 0, field_of), ValueError, "nslots=0"),
        (lambda: de.layers.FieldWiseEmbedding(2, "3", field_of), TypeError, "nslots='3'"),
        (lambda: de.layers.FieldWiseEmbedding(2, 3), TypeError, "slot_map_fn=None"),
        (lambda: de.layers.FieldWiseEmbedding(2, 3, field_of)(int64([1])), ValueError, "shape"),
        (lambda: de.layers.Embedding(2, mask_key="a"), TypeError, "`mask_key`.*int64.*'a'"),
        (lambda: de.layers.Embedding(2, mask_key=1.5), TypeError, "`mask_key`.*int64.*1.5"),
        (lambda: de.layers.Embedding(2, tf.string, mask_key=0), TypeError, "`mask_key`.*string"),
        (lambda: de.layers.Embedding(2, tf.int32, mask_key=2**40), ValueError, "range.*int32"),
        (lambda: de.layers.Embedding(2, max_norm="1"), TypeError, "`max_norm`.*number.*'1'"),
        (lambda: de.layers.Embedding(2, max_norm=0.0), ValueError, "`max_norm`.*above 0"),
        (
            lambda: de.layers.Embedding(2, combiner="sum")(IDS, mask=tf.constant([True])),
            ValueError,
            r"mask.shape=\(1,\), ids.shape=\(1, 2\)",
        ),
        (
            lambda: de.layers.Embedding(2, value_dtype=tf.int32, combiner="std")(IDS),
            TypeError,
            "floating-point.*value_dtype=int32, combiner='std'",
        ),
        (
            lambda: de.layers.Embedding(2, combiner="sum")(IDS[0, 0]),
            ValueError,
            "rank 1 or more",
        ),
        (lambda: de.layers.SquashedEmbedding(2)(IDS[0, 0]), ValueError, "rank 1 or more"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("fields", "error", "received"),
    [
        (lambda _: None, TypeError, "returned=None"),
        (lambda ids: {"field": ids}, TypeError, "returned={'field'"),
        (lambda ids: tf.cast(ids, tf.float32), ValueError, "dtype=float32"),
        (lambda ids: ids[:1], (ValueError, tf.errors.InvalidArgumentError), "one whole number per"),
    ],
)
@pytest.mark.parametrize("in_function", [False, True])
def test_fields_of_another_kind_are_refused(fields, error, received, in_function):
    layer = de.layers.FieldWiseEmbedding(2, 9, fields)
    specs = [tf.TensorSpec([None, 3], tf.int64)]
    call = tf.function(layer, input_signature=specs) if in_function else layer
    with pytest.raises(error, match=f"`slot_map_fn` must return(?s:.)*{received}"):
        call(tf.constant([[1, 2, 3], [4, 5, 6]], tf.int64))


@pytest.mark.parametrize("key", [np.int64(1), tf.constant(1), b"1"])
def test_masking_ids_of_any_kind_are_kept_in_configurations(key):
    key_dtype = "string" if isinstance(key, bytes) else "int64"
    layer = de.layers.Embedding(2, key_dtype, mask_key=key)
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    assert copy.mask_key == ("1" if isinstance(key, bytes) else 1)


def test_the_regularizer_counts_touched_rows_once_and_no_padding():
    regularizer = keras.regularizers.L2(0.5)
    layer = filled(de.layers.Embedding(2, mask_key=0, embeddings_regularizer=regularizer))
    with tf.GradientTape() as tape:
        layer(int64([[3, 3, 5, 0]]))
        loss = tf.add_n(layer.losses)
    np.testing.assert_allclose(loss, 0.5 * np.sum(VALUES[[3, 5]] ** 2), rtol=1e-5)
    (gradient,) = tape.gradient(loss, layer.table.trainable_variables)
    np.testing.assert_allclose(gradient.values, VALUES[[3, 5]], rtol=1e-5)
    assert sorted(gradient.indices.numpy()) == [3, 5]


def several_layers():
    """A model with all three layers, one of them on two inputs."""
    first = keras.Input([3], dtype="int64", name="first")
    second = keras.Input([3], dtype="int64", name="second")
    shared = de.layers.SquashedEmbedding(
        2,
        combiner="mean",
        initializer=keras.initializers.RandomNormal(seed=1),
        embeddings_regularizer="l2",
        name="shared",
    )
    by_field = de.layers.FieldWiseEmbedding(2, 3, field_of, initializer=0.5, name="by_field")
    each = de.layers.Embedding(2, initializer="uniform", mask_key=0, name="each")
    averaged = keras.layers.GlobalAveragePooling1D()(each(second))
    fields = keras.layers.Flatten()(by_field(first))
    parts = [shared(first), shared(second), fields, averaged]
    score = keras.layers.Dense(1)(keras.layers.Concatenate()(parts))
    return keras.Model([first, second], score)


@pytest.fixture(scope="module")
def trained():
    ids = np.random.default_rng(2).integers(0, 50, [2, 32, 3])
    model = several_layers()
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.05)), "mse")
    model.fit([ids[0], ids[1]], np.ones([32, 1], np.float32), epochs=2, verbose=0)
    return model, [ids[0], ids[1]]


def test_exported_models_answer_the_same(trained, tmp_path):
    model, ids = trained
    new = [tf.constant(each + 25) for each in ids]  # half of the ids were never trained
    ours = model(new)
    for _ in range(2):  # the second export replaces the first
        model.export(str(tmp_path / "saved"))
        loaded = tf.saved_model.load(str(tmp_path / "saved"))
        np.testing.assert_allclose(loaded.serve(new), ours, rtol=1e-5)
    loaded = tf.saved_model.load(de.export(model, tmp_path / "versions"))
    serve = loaded.signatures["serving_default"]
    (theirs,) = serve(first=new[0], second=new[1]).values()
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)


@pytest.mark.parametrize("value_dtype", ["bfloat16", "float64"])
def test_the_regularizer_adds_to_losses_of_another_dtype(value_dtype):
    layer = de.layers.Embedding(
        2, value_dtype=value_dtype, initializer=3.0, embeddings_regularizer="l2"
    )
    model = keras.Sequential([layer, keras.layers.Dense(1, dtype="float32")])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.0)), "mse")
    model.fit(tf.constant([4, 5], tf.int64), np.zeros([2, 1]), verbose=0)
    layer(tf.constant([4, 5, 5], tf.int64))
    assert [float(loss) for loss in layer.losses] == [pytest.approx(0.01 * 4 * 9.0, rel=1e-2)]


def test_clones_have_tables_of_their_own(trained):
    model, ids = trained
    clone = keras.models.clone_model(model)
    for name in ("shared", "by_field", "each"):
        original = model.get_layer(name)
        copy = clone.get_layer(name)
        assert copy.table is not original.table
        assert int(copy.table.size()) == 0
        assert copy.get_config() == original.get_config()
    assert clone([tf.constant(each) for each in ids]).shape == [32, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: de.layers.SquashedEmbedding(2, combiner=middle, name="a", max_norm=1.0),
        lambda: de.layers.FieldWiseEmbedding(2, 3, field_of, initializer=0.5, init_size=7),
        lambda: de.layers.FieldWiseEmbedding(2, 3, tf.function(field_of), devices=["/CPU:0"] * 2),
        lambda: de.layers.Embedding(2, embeddings_regularizer="l2", with_unique=True, bp_v2=True),
        lambda: de.layers.Embedding(2, tf.string, mask_key="", combiner="mean", name="words"),
        lambda: de.layers.Embedding(2, initializer=keras.initializers.RandomNormal(seed=3)),
        lambda: de.layers.Embedding(2, initializer=np.array([1.0, 2.0]), trainable=False),
        lambda: de.layers.Embedding(2, initializer=0.5, value_dtype="bfloat16", dtype="float32"),
    ],
)
def test_layers_come_back_from_their_config(make):
    layer = make()
    config = layer.get_config()
    json.dumps(config)
    copy = type(layer).from_config(config)
    assert copy.get_config() == config
    ids = tf.constant([["a"]]) if layer.table.key_dtype == tf.string else IDS
    np.testing.assert_array_equal(layer(ids), copy(ids))


LAYERS = [de.layers.Embedding, de.layers.SquashedEmbedding]


@pytest.mark.parametrize(
    "make", [*LAYERS, lambda dim: de.layers.FieldWiseEmbedding(dim, 3, field_of)]
)
def test_rows_begin_uniform_as_those_of_a_dense_embedding(make):
    layer = make(8)
    dense = keras.layers.Embedding(1000, 8)
    dense.build([None])
    rows = layer.table.lookup(np.arange(1000)).numpy()
    np.testing.assert_allclose(np.abs(rows).max(), np.abs(dense.get_weights()[0]).max(), rtol=0.01)
    np.testing.assert_allclose(rows.std(), 0.1 / np.sqrt(12), rtol=0.02)
    assert layer.get_config()["initializer"] == "uniform"
    assert (
        float(tf.norm(type(layer).from_config(layer.get_config()).table.lookup([1]) - rows[1])) == 0
    )


def test_rows_of_other_values_begin_as_zeros():
    for value_dtype, zero in (("int32", 0), ("string", b"")):
        layer = de.layers.Embedding(1, value_dtype=value_dtype)
        assert layer(int64([5])).numpy().tolist() == [[zero]]


def test_the_layers_of_the_reference_api_begin_normal():
    for initializer in ({}, {"initializer": None}):
        layer = de.tfra.dynamic_embedding.keras.layers.SquashedEmbedding(4, **initializer)
        rows = layer.table.lookup(np.arange(4000)).numpy()
        np.testing.assert_allclose(rows.std(), 0.05, rtol=0.03)
        assert np.abs(rows).max() > 0.15
        copy = keras.layers.deserialize(keras.layers.serialize(layer))
        assert type(copy) is type(layer)
        np.testing.assert_array_equal(copy.table.lookup([7]), layer.table.lookup([7]))


def test_layers_without_a_name_get_one_of_their_own():
    made = [de.layers.SquashedEmbedding(2) for _ in range(2)]
    made += [de.layers.FieldWiseEmbedding(2, 3, field_of) for _ in range(2)]
    assert len({layer.name for layer in made}) == 4
    assert len({layer.table.name for layer in made}) == 4
    assert isinstance(made[0], keras.layers.Layer)
    assert de.layers.BasicEmbedding is de.layers.Embedding


@applies_if(not LEGACY, "Keras 3, for such inputs of functional models")
@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_models_of_ragged_and_sparse_inputs(kind):
    ids = KINDS["ragged"].merge_dims(1, 2)
    inputs = keras.Input([None], dtype="int64", **{kind: True})
    layer = filled(de.layers.Embedding(2, combiner="sum"))
    model = keras.Model(inputs, layer(inputs))
    rows = model(ids if kind == "ragged" else ids.to_sparse())
    np.testing.assert_allclose(rows, [VALUES[i].sum(0) for i in ids.to_list()], rtol=1e-5)


@pytest.mark.parametrize(
    ("combiner", "rows", "ids", "wanted"),
    [
        ("std", [300.0, -300.0], [1, 2], 300.0),  # float16 cannot hold the squares
        ("prod", [300.0, 0.001], [1, 1, 2, 2], 0.09007),  # nor the product of the first two
    ],
)
def test_half_rows_are_pooled_in_float32(combiner, rows, ids, wanted):
    layer = de.layers.Embedding(1, value_dtype=tf.float16, combiner=combiner)
    layer.table.upsert([1, 2], tf.constant(rows, tf.float16))
    pooled = layer(int64([ids]))
    assert pooled.dtype == tf.float16
    np.testing.assert_allclose(pooled, [[wanted]], rtol=3e-3)


@pytest.mark.parametrize("ids", [[[1]], [[2, 2]]])
def test_rows_without_spread_have_a_zero_gradient_by_std(ids):
    layer = filled(de.layers.Embedding(2, combiner="std"))
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam()), "mse")
    model.fit(int64(ids), np.ones([1, 1], np.float32), verbose=0)
    np.testing.assert_array_equal(layer.table.lookup(np.arange(10)), VALUES)
