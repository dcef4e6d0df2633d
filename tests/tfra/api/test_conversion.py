"""Arrays and initial values of another dtype are converted as the real wheel does."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from de_core import tfra
from de_core.base.keras import keras

de = tfra.dynamic_embedding
MANY = np.arange(4000)


def test_arrays_are_converted_with_one_warning_per_argument():
    table = de.Variable(dim=2, name="converted")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(3):
            table.upsert(np.array([1, 2], np.int32), np.array([[1, 2], [3, 4]], np.float64))
            assert table.lookup(np.array([1.0, 2.0])).numpy().tolist() == [[1, 2], [3, 4]]
    texts = [str(each.message) for each in warned]
    assert texts == [
        "`keys` of table 'converted' are converted from int32 to int64, as tfra does. Pass int64.",
        "`values` of table 'converted' are converted from float64 to float32, as tfra does. "
        "Pass float32.",
    ]


def test_keys_that_would_change_are_refused():
    table = de.Variable(key_dtype=tf.int32, dim=1)
    for keys in (np.array([1.5]), np.array([2**40]), np.array([np.nan])):
        with pytest.raises(TypeError, match=r"int32 without rounding.*Pass whole numbers"):
            table.lookup(keys)


@pytest.mark.parametrize("keys", [tf.constant([1]), np.array(["a"])])
def test_tensors_and_strings_are_refused_as_there(keys):
    with pytest.raises(TypeError, match=r"`keys` of table .* must be int64"):
        de.Variable(dim=1).lookup(keys)


def test_layers_and_shared_variables_convert_too():
    layer = de.keras.layers.Embedding(2, initializer="zeros", name="casting")
    assert isinstance(layer.params, de.Variable)
    shared = de.get_variable("shared_casting", dim=2)
    assert de.get_variable("shared_casting", dim=2) is shared
    for table in (layer.params, shared):
        with pytest.warns(UserWarning, match="as tfra does"):
            table.upsert([1], np.ones([1, 2]))
        assert table.size() == 1


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
    assert abs(np.std(layer(MANY)) - 0.5) < 0.01  # sqrt(2 / 8)
    again = type(layer).from_config(layer.get_config())
    assert abs(np.std(again(MANY)) - 0.5) < 0.01
    bounded = de.Variable(dim=8, initializer=initializer, init_size=200)
    assert abs(np.std(bounded.lookup(MANY)) - 0.1) < 0.002  # sqrt(2 / 200)
