"""Subclassed models load from `.keras` files, with the Keras of the process."""

import keras as keras_3
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras
from tests.support.applies import applies_if
from tests.support.rebuilt_models import INPUTS, OfNamedInputs, OfNumbers, train_on


@pytest.mark.parametrize(
    "model_class",
    [
        pytest.param(each, id=each.__name__, marks=[pytest.mark.slow] * (each is not OfNamedInputs))
        for each in INPUTS
    ],
)
def test_they_answer_the_same_in_another_process(forks, tmp_path, model_class):
    model = model_class()
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    name, inputs = model_class.__name__, INPUTS[model_class]
    np.save(tmp_path / f"{name}.npy", train_on(model, inputs))
    model.save(tmp_path / f"{name}.keras")
    np.save(tmp_path / f"{name}_later.npy", train_on(model, inputs))
    done = forks.module("tests.support.rebuilt_models", tmp_path, name)
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_config_has_only_devices_that_were_given():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        layer = de.layers.Embedding(2)
    assert type(layer).from_config(layer.get_config()).table.devices == ["/CPU:0"]
    layer = de.layers.Embedding(2, devices=["/CPU:0"] * 2)
    assert type(layer).from_config(layer.get_config()).table.devices == ["/CPU:0"] * 2


def test_ids_that_are_floats_are_refused_where_there_are_numbers():
    model = OfNumbers()
    floats = tf.constant([[1.0, 2.0]])
    for call in (model, tf.function(model)):
        with pytest.raises(TypeError, match=r"must be int64(?s:.)*ids.dtype=float32"):
            call(floats)
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD()), "mse")
    with pytest.raises(TypeError, match=r"must be int64(?s:.)*ids.dtype=float32"):
        model.fit(floats, tf.ones([1, 1]), verbose=0)
    table = de.Variable(dim=2)
    with pytest.raises(TypeError, match="Only integers and strings are ids"):
        tf.function(table.lookup)(floats)


@applies_if(not LEGACY, "Keras 3, which calls layers outside of the model's own graph")
def test_an_input_that_was_left_a_float_is_refused():
    inputs = keras_3.Input([2])
    with pytest.raises(TypeError, match=r"keras.Input\(..., dtype='int64'\)"):
        de.layers.Embedding(2)(inputs)
    scores = OfNumbers()(inputs)  # Keras only infers shapes here
    model = keras_3.Model(inputs, scores)
    with pytest.raises(TypeError, match=r"must be int64(?s:.)*ids.dtype=float32"):
        model(tf.constant([[1, 2]], tf.int64))
