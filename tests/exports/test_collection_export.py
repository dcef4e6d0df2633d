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


@pytest.mark.parametrize(
    "entry_point", [de.export, pytest.param(de.publish, marks=pytest.mark.slow)]
)
def test_nested_features_are_saved_and_another_process_answers_alike(
    entry_point, run_python, tmp_path
):
    items = de.TableConfig("items", 2, optimizer="adam")
    words = de.TableConfig("words", 3, key_dtype="string", optimizer="adagrad")
    features = {
        "user": {"id": de.FeatureConfig("id", items)},
        "seen": {
            "items": de.FeatureConfig("first", items, "sqrtn", max_length=3),
            "tags": de.FeatureConfig("tags", words, "sum", mask_key=""),
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
    path = entry_point(loaded, tmp_path / "m")
    asked = {
        "serving_default": {  # as a REST client sends them
            "id": [1, 2, 12345],
            "first_values": SEEN.values.numpy().tolist(),
            "first_row_lengths": [2, 0, 4],
            "tags": [["red", ""], ["", ""], ["blue", "red"]],
        },
        "de_lookup/items": {"ids": [1, 99]},
        "de_lookup/words": {"ids": ["red", "green"]},
    }
    answers = json.loads(run_python(ANSWERS, path, json.dumps(asked)))
    np.testing.assert_allclose(answers["serving_default"]["output_0"], model(ids), rtol=1e-5)
    assert answers["de_lookup/items"]["found"] == [True, False]
    assert answers["de_lookup/words"]["found"] == [True, False]
