"""Runs each op test eagerly and in a `tf.function`."""

import pytest
import tensorflow as tf

from de_core.base.ops import library


@pytest.fixture(params=["eager", "function"])
def run(request):
    """Calls a function of tensors directly, or traced."""

    def call(function, *tensors):
        def without_operations(*arguments):
            result = function(*arguments)
            return None if isinstance(result, tf.Operation) else result

        tensors = [tf.convert_to_tensor(each) for each in tensors]
        traced = tf.function(without_operations) if request.param == "function" else function
        return traced(*tensors)

    return call


@pytest.fixture
def make_table():
    """Creates a table, by default with int64 keys and rows of two floats."""

    def make(**attributes):
        return library.de_table(
            **{
                "anonymous": True,
                "key_dtype": tf.int64,
                "value_dtype": tf.float32,
                "dim": 2,
                **attributes,
            }
        )

    return make
