"""Exports of models with an `EmbeddingCollection` take each feature by name."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.exports.test_export import ANSWERS

SEEN = tf.ragged.constant([[3, 4], [], [1, 2, 0, 3]], dtype=tf.int64)
FEATURES = {
    "user": tf.constant([1, 2, 12345], tf.int64),
    "seen": SEEN,
    "tags": tf.constant([["red", ""], ["", ""], ["blue", "red"]]),
}
#: The same as a REST client sends them. Tags are padded by "".
REQUEST = {
    "user": [1, 2, 12345],
    "seen_values": SEEN.values.numpy().tolist(),
    "seen_row_lengths": [2, 0, 4],
    "tags": [["red", ""], ["", ""], ["blue", "red"]],
}


@pytest.fixture
def model():
    items = de.TableConfig("items", 4)
    words = de.TableConfig("words", 3, key_dtype="string")
    layer = de.layers.EmbeddingCollection(
        {
            "user": de.FeatureConfig("user", de.TableConfig("users", 2)),
            "seen": de.FeatureConfig("seen", items, "sqrtn", max_length=3),
            "tags": de.FeatureConfig("tags", words, "sum", mask_key=""),
        },
        concatenate=True,
    )
    for name in ("users", "items"):
        table = layer.tables[name]
        table.upsert(np.arange(5), np.random.default_rng(0).random([5, table.dim], np.float32))
    inputs = {
        "user": keras.Input([], dtype="int64", name="user"),
        "seen": keras.Input([None], dtype="int64", ragged=True, name="seen"),
        "tags": keras.Input([2], dtype="string", name="tags"),
    }
    return keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))


@pytest.mark.parametrize(
    "entry_point", [de.export, pytest.param(de.publish, marks=pytest.mark.slow)]
)
def test_another_process_gives_the_same_answers(entry_point, model, run_python, tmp_path):
    path = entry_point(model, tmp_path)
    asked = {
        "serving_default": REQUEST,
        "de_lookup/items": {"ids": [1, 99]},
        "de_lookup/users": {"ids": [1, 99]},
    }
    answers = json.loads(run_python(ANSWERS, path, json.dumps(asked)))
    np.testing.assert_allclose(answers["serving_default"]["output_0"], model(FEATURES), rtol=1e-5)
    assert answers["de_lookup/items"]["found"] == [True, False]
    assert answers["de_lookup/users"]["found"] == [True, False]


def test_weights_are_inputs_of_a_model(tmp_path):
    table = de.TableConfig("rows", 2, initializer="ones")
    layer = de.layers.EmbeddingCollection({"a": de.FeatureConfig("a", table, "sum", weights=True)})
    inputs = {
        "a": keras.Input([None], dtype="int64", ragged=True, name="a"),
        "weight": keras.Input([None], ragged=True, name="weight"),
    }
    model = keras.Model(inputs, layer({"a": inputs["a"]}, {"a": inputs["weight"]})["a"])
    model.save(tmp_path / "model.keras")
    ids = tf.ragged.constant([[3, 4], []], dtype=tf.int64)
    given = {"a": ids, "weight": ids.with_values(tf.constant([2.0, 0.5]))}
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(each(given), [[2.5, 2.5], [0, 0]])
    path = de.export(model, tmp_path / "m")
    serve = tf.saved_model.load(path).signatures["serving_default"]
    lengths = ids.row_lengths()
    rows = serve(
        a_values=ids.values,
        a_row_lengths=lengths,
        weight_values=given["weight"].values,
        weight_row_lengths=lengths,
    )
    np.testing.assert_allclose(next(iter(rows.values())), [[2.5, 2.5], [0, 0]])


def test_nested_features_are_saved_and_exported(tmp_path):
    items = de.TableConfig("items", 2, optimizer="adam")
    words = de.TableConfig("words", 3, key_dtype="string", optimizer="adagrad")
    features = {
        "user": {"id": de.FeatureConfig("id", items)},
        "seen": {
            "items": de.FeatureConfig("first", items),
            "tags": de.FeatureConfig("tags", words, "sum"),
        },
    }
    inputs = {
        "user": {"id": keras.Input([], dtype="int64", name="id")},
        "seen": {
            "items": keras.Input([None], dtype="int64", ragged=True, name="first"),
            "tags": keras.Input([2], dtype="string", name="tags"),
        },
    }
    layer = de.layers.EmbeddingCollection(features, concatenate=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    model.compile("sgd", "mse")
    ids = {
        "user": {"id": FEATURES["user"]},
        "seen": {"items": FEATURES["seen"], "tags": FEATURES["tags"]},
    }
    model.fit(tf.data.Dataset.from_tensors((ids, np.ones([3, 1]))), shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(ids), model(ids))
    serve = tf.saved_model.load(de.export(loaded, tmp_path / "m")).signatures["serving_default"]
    answer = serve(
        id=FEATURES["user"],
        first_values=SEEN.values,
        first_row_lengths=SEEN.row_lengths(),
        tags=FEATURES["tags"],
    )
    np.testing.assert_allclose(next(iter(answer.values())), model(ids), rtol=1e-5)
