"""Arrays of another dtype are converted as the real wheel does, with one warning."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import de_core
from de_core import tfra

de = tfra.dynamic_embedding


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


def test_the_library_itself_stays_strict():
    with pytest.raises(TypeError, match=r"`values` of table .* must be float32"):
        de_core.Variable(dim=1).upsert([1], np.ones([1, 1]))


def test_layers_and_shared_variables_convert_too():
    layer = de.keras.layers.Embedding(2, initializer="zeros", name="casting")
    assert isinstance(layer.params, de.Variable)
    shared = de.get_variable("shared_casting", dim=2)
    assert de.get_variable("shared_casting", dim=2) is shared
    for table in (layer.params, shared):
        with pytest.warns(UserWarning, match="as tfra does"):
            table.upsert([1], np.ones([1, 2]))
        assert table.size() == 1
