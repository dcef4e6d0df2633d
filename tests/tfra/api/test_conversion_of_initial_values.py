"""Initial values are translated as `tfra` translates them."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from de_core import tfra
from de_core.base.keras import keras

de = tfra.dynamic_embedding
KEYS = np.arange(4000)


def row(initializer, dtype=tf.float32):
    return de.Variable(value_dtype=dtype, dim=2, initializer=initializer).lookup([7])[0].numpy()


@pytest.mark.parametrize(
    "initializer",
    [
        tf.constant(2, tf.int32),
        tf.constant([2.0, 2.0], tf.float64),
        tf.Variable(2.0, dtype=tf.float64),
        np.array([2]),
        np.float64(2),
    ],
)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.int8])
def test_numbers_of_another_dtype_are_cast(initializer, dtype):
    assert row(initializer, dtype).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("initializer", "value"), [(-2.7, -2), (300, 44), (tf.constant(0.7, tf.float64), 0)]
)
def test_integers_change_as_in_tfra_with_a_warning(initializer, value):
    with pytest.warns(UserWarning, match=r"should hold int8 numbers.*Received: .*are cast to"):
        assert row(initializer, tf.int8).tolist() == [value, value]


def test_a_graph_may_have_a_tensor_of_another_dtype():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("cast", dim=2, initializer=tf.constant(0.5, tf.float64))
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(table.lookup(np.array([7]))).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.HeNormal(),
        "he_normal",
        functools.partial(keras.initializers.HeNormal, seed=1),
    ],
    ids=["object", "name", "partial"],
)
def test_a_variance_scaling_without_a_height_scales_by_the_dim(initializer):
    layer = de.keras.layers.Embedding(8, initializer=initializer)
    assert abs(np.std(layer(KEYS)) - 0.5) < 0.01  # sqrt(2 / 8)
    again = type(layer).from_config(layer.get_config())
    assert abs(np.std(again(KEYS)) - 0.5) < 0.01
    bounded = de.Variable(dim=8, initializer=initializer, init_size=200)
    assert abs(np.std(bounded.lookup(KEYS)) - 0.1) < 0.002  # sqrt(2 / 200)
