"""Ids that Keras casts from floats are refused, because large ids become equal."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

IDS = np.array([[2**24], [2**24 + 1]])
WORDS = tf.constant([["a"], ["b"]])
REMEDY = r"Begin the outermost model with keras.Input\(..., dtype='int64'\), and pass int64"


def tail():
    return [keras.layers.Flatten(), keras.layers.Dense(1)]


def fitted(model, ids):
    model.compile(de.DynamicEmbeddingOptimizer("sgd"), "mse")
    model.fit(ids, np.ones([2, 1]), verbose=0)
    return model


@pytest.mark.each_choice
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("layer", [de.layers.Embedding, de.layers.SquashedEmbedding])
def test_a_sequential_in_a_sequential(layer, policy):
    keras.config.set_dtype_policy(policy)
    try:
        tower = keras.Sequential([layer(4)])
        with pytest.raises(TypeError, match=REMEDY):
            fitted(keras.Sequential([tower, *tail()]), IDS)
        tower = keras.Sequential([layer(4)])
        given = keras.Sequential([keras.Input([1], dtype="int64"), tower, *tail()])
        first, second = fitted(given, IDS).predict(IDS, verbose=0)
        assert first != second
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_tower_with_an_input_in_a_sequential_without():
    tower = keras.Sequential([keras.Input([1], dtype="int64"), de.layers.Embedding(4)])
    with pytest.raises(TypeError, match=REMEDY):
        fitted(keras.Sequential([tower, *tail()]), IDS)


def test_a_tower_of_strings():
    tower = keras.Sequential([de.layers.Embedding(4, "string")])
    with pytest.raises(TypeError, match="dtype='string'"):
        fitted(keras.Sequential([tower, *tail()]), WORDS)


def test_a_layer_of_a_user_in_a_sequential():
    class Own(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.rows = de.layers.Embedding(4)

        def call(self, ids):
            return self.rows(ids)

    with pytest.raises(TypeError, match=r"keras.Input\(..., dtype='int64'\). A Sequential without"):
        fitted(keras.Sequential([Own(), *tail()]), IDS)
    model = fitted(keras.Sequential([keras.Input([1], dtype="int64"), Own(), *tail()]), IDS)
    assert int(model.layers[0].rows.table.size()) == 2


@pytest.mark.parametrize("kind", ["sequential", "functional", "collection"])
def test_floats_for_an_input_of_integers(kind):
    given = keras.Input([1], dtype="int64")
    if kind == "sequential":
        model = keras.Sequential([given, de.layers.Embedding(4)])
    elif kind == "functional":
        model = keras.Model(given, de.layers.Embedding(4)(given))
    else:
        config = de.FeatureConfig("ids", de.TableConfig("ids", 4))
        model = keras.Model(given, de.layers.EmbeddingCollection([config])([given])[0])
    with pytest.raises(TypeError, match=REMEDY):
        model.predict(np.array([[1.7], [np.nan]]), verbose=0)
    assert len(model.predict(IDS, verbose=0)) == 2


def test_floats_that_a_layer_makes_ids_of_are_no_ids():
    layers = [keras.layers.Discretization([0.5, 1.5]), de.layers.Embedding(4), *tail()]
    model = fitted(keras.Sequential(layers), np.array([[0.2], [1.7]]))
    assert sorted(model.layers[1].table.export()[0].numpy()) == [0, 2]


@pytest.mark.parametrize("named", [False, True])
def test_floats_of_another_input_are_no_ids(named):
    ids, price = keras.Input([1], dtype="int64", name="z"), keras.Input([1], name="a")
    rows = keras.layers.Flatten()(de.layers.Embedding(4)(ids))
    scores = keras.layers.Dense(1)(keras.layers.Concatenate()([rows, price]))
    model = keras.Model({"z": ids, "a": price} if named else [ids, price], scores)
    assert len(model.predict({"z": IDS, "a": np.ones([2, 1])}, verbose=0)) == 2
