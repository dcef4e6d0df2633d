"""Newcomers write code from the habits of Keras, keras-rs and TensorFlow.

Each guess works, or gets one sentence with the remedy.
"""

import copy

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import served

IDS = np.array([[7, 8, 7]])
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)
Embedding = de.layers.Embedding


@pytest.fixture
def table():
    made = de.Variable(dim=4, name="guessed")
    made.upsert([1, 2, 3], MATRIX)
    return made


def built():
    layer = Embedding(4)
    layer(IDS)
    return layer


#: A guess, and the remedy that the sentence names.
REFUSED = {
    "input_length": (lambda _: Embedding(4, input_length=9), "leave out `input_length`"),
    "set_weights": (lambda _: built().set_weights([MATRIX]), "upsert"),
    "pretrained initializer": (
        lambda _: Embedding(4, embeddings_initializer=keras.initializers.Constant(MATRIX)),
        "upsert",
    ),
    "embeddings": (lambda _: built().embeddings.assign(MATRIX), "upsert"),
    "numpy": (lambda table: table.numpy(), r"export\(\)"),
    "insert": (lambda table: table.insert([1], MATRIX[:1]), "upsert"),
    "assign": (lambda table: table.assign([1], MATRIX[:1]), "upsert"),
    "shape": (lambda table: table.shape, r"size\(\)"),
    "float64 rows": (
        lambda table: table.upsert([1], np.ones([1, 4])),
        "`values` of table 'guessed' must be float32.*Pass float32",
    ),
    "loop over a table": (iter, "not iterable"),
    "copy of a table": (copy.deepcopy, r"upsert\(\*old.export\(\)\)"),
    "mask of integers": (
        lambda _: Embedding(4, combiner="sum")(IDS, mask=np.ones([1, 3], np.int64)),
        "bool tensor.* mask.dtype=int64",
    ),
    "tf.nn.embedding_lookup": (
        lambda table: tf.nn.embedding_lookup(table, [1]),
        "de.embedding_lookup",
    ),
    "tf.gather": (lambda table: tf.gather(table, [1]), "de.embedding_lookup"),
    "names of keras-rs": (
        lambda _: de.TableConfig(vocabulary_size=9, embedding_dim=4),
        r"TableConfig\(name, dim\)",
    ),
    "feature_configs": (
        lambda _: de.layers.EmbeddingCollection(feature_configs={}),
        r"EmbeddingCollection\(features\)",
    ),
    "dtype of ids": (lambda _: Embedding(4, dtype="string"), "key_dtype=tf.string"),
    "text ids": (
        lambda _: Embedding(4)(tf.constant(["a"])),
        "or the layer with key_dtype='string'",
    ),
    "number ids": (lambda _: Embedding(4, tf.string)(tf.constant([1])), "must be string"),
    "a dict of ids": (lambda _: Embedding(4)({"a": IDS}), "EmbeddingCollection"),
    "uint64 ids": (lambda _: Embedding(4)(IDS.astype(np.uint64)), r"view\('int64'\)"),
    "uint32 ids": (lambda _: Embedding(4)(IDS.astype(np.uint32)), r"astype\('int64'\)"),
    "float ids": (lambda _: Embedding(4)(IDS.astype(np.float32)), "dtype='int64'"),
    "weights without pooling": (lambda _: Embedding(4)(IDS, np.ones([1, 3])), "`combiner`"),
    "weights of a maximum": (
        lambda _: Embedding(4, combiner="max")(IDS, np.ones([1, 3])),
        "sum, mean, sqrtn",
    ),
    "weights of another shape": (
        lambda _: Embedding(4, combiner="sum")(IDS, np.ones([1, 2])),
        "the shape of its ids",
    ),
    "max_rows": (lambda _: Embedding(4, max_rows=9), "EvictionLRU"),
    "max_size": (lambda _: Embedding(4, max_size=9), "EvictionLRU"),
    "ttl": (lambda _: Embedding(4, ttl=9), "EvictionTTL"),
}


@pytest.mark.parametrize("guess", REFUSED)
def test_a_guess_gets_a_sentence_with_the_remedy(table, guess):
    call, remedy = REFUSED[guess]
    kinds = (TypeError, ValueError, AttributeError, RuntimeError)
    if guess in ("float64 rows", "text ids", "number ids"):
        kinds = TypeError
    with pytest.raises(kinds, match=remedy):
        call(table)


def test_a_table_reads_like_a_dict(table):
    np.testing.assert_array_equal(table[[3, 9]], [MATRIX[2], np.zeros(4)])
    assert (len(table), 3 in table, 9 in table) == (3, True, False)
    assert de.Variable(dim=1)  # an empty table is no false value


def test_a_printed_table_tells_its_rows_and_bytes(table):
    assert str(table).startswith(repr(table)[:-1])
    assert "3 rows" in str(table)
    assert str(table).endswith("B>")
    with tf.Graph().as_default():
        graph = de.Variable(dim=1)
        assert str(graph) == repr(graph)


@pytest.mark.parametrize(
    "ids",
    [7, [7, 2**40], (7,), pd.Series([7, 8]), IDS.astype(np.int32), tf.constant(7)],
    ids=lambda each: type(each).__name__,
)
def test_ids_may_be_python_numbers_lists_arrays_and_series(ids):
    layer = Embedding(4, initializer="ones")
    np.testing.assert_array_equal(layer(ids), np.ones([*np.shape(ids), 4]))


def test_string_ids_may_be_a_list():
    layer = Embedding(4, tf.string, initializer="ones")
    assert layer([["a"], ["b"]]).shape == (2, 1, 4)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_weights_per_id_count_as_those_of_a_collection(combiner, kind):
    ids = tf.ragged.constant([[7, 8, 7], [9]], dtype=tf.int64)
    weights = tf.ragged.constant([[0.5, 2.0, 1.0], [3.0]])
    if kind == "sparse":
        ids, weights = ids.to_sparse(), weights.to_sparse()
    if kind == "dense":
        ids, weights = ids[:1].to_tensor(), weights[:1].to_tensor()
    config = de.TableConfig("same", 4, combiner=combiner)
    collection = de.layers.EmbeddingCollection([de.FeatureConfig("ids", config)])
    layer = Embedding(4, combiner=combiner, name="same", initializer="uniform")
    ours = collection([ids], [weights])[0]
    np.testing.assert_allclose(layer(ids, weights), ours, rtol=1e-6)


def test_a_mask_leaves_out_ids_with_weights_too():
    class Padded(keras.layers.Layer):
        def call(self, ids):
            return tf.identity(ids)

        def compute_mask(self, ids, _=None):
            return tf.not_equal(ids, 0)

    ids = Padded(dtype="int64", autocast=False)(np.array([[7, 0]]))
    layer = Embedding(2, combiner="sum", initializer="ones")
    np.testing.assert_array_equal(layer(ids), [[1.0, 1.0]])
    np.testing.assert_array_equal(layer(ids, tf.constant([[3.0, 5.0]])), [[3.0, 3.0]])


def test_weights_per_id_count_where_ids_are_squashed_or_divided_into_fields():
    ids, weights = tf.constant([[7, 8, 7]], tf.int64), tf.constant([[0.5, 2.0, 1.0]])
    squashed = de.layers.SquashedEmbedding(2, combiner="sum", initializer="ones")
    np.testing.assert_array_equal(squashed(ids, weights), [[3.5, 3.5]])
    fields = de.layers.FieldWiseEmbedding(1, 2, lambda each: each - 7, initializer="ones")
    np.testing.assert_array_equal(fields(ids, weights), [[[1.5], [2.0]]])


def test_a_model_with_weights_per_id_trains_is_saved_and_exported(tmp_path):
    ids = keras.Input([3], dtype="int64", name="ids")
    weights = keras.Input([3], name="weights")
    rows = Embedding(4, combiner="sum", optimizer="sgd", name="weighted")(ids, weights)
    model = keras.Model([ids, weights], keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    given = {"ids": IDS, "weights": np.array([[0.5, 2.0, 1.0]], np.float32)}
    model.fit(given, np.ones([1, 1]), epochs=2, verbose=0)
    answer = model(given)
    assert len(model.get_layer("weighted").table) == 2
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(again(given), answer)
    np.testing.assert_allclose(served(de.export(model, tmp_path / "served"), **given), answer)
