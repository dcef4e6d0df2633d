"""The private names of TensorFlow and Keras that the library uses still exist."""

import re

import keras
import pytest
import tensorflow as tf
import tf_keras
from tf_keras.src.saving.legacy import hdf5_format

from de_core.base import private_names

v1 = tf.compat.v1


def test_they_are_there():
    with tf.Graph().as_default():
        variable = v1.get_variable("v", initializer=1.0, use_resource=True)
        assert getattr(variable, private_names.ASKED_BY_SAVERS) is True
        saver = v1.train.Saver([variable])
        assert getattr(saver, private_names.GIVEN_TO_SAVER) == [variable]
    assert getattr(tf.Variable(1.0), private_names.ASKED_BY_SAVERS) is False


def test_tf_keras_has_its_own():
    assert callable(getattr(hdf5_format, private_names.WRITER_OF_H5_FILES))


@pytest.mark.parametrize("of", [keras.optimizers, tf_keras.optimizers])
def test_optimizers_note_what_they_do_not_decay(of):
    optimizer = of.SGD()
    optimizer.exclude_from_weight_decay([tf.Variable(1.0)], ["bias"])
    assert getattr(optimizer, private_names.VARIABLES_WITHOUT_DECAY)
    found = [getattr(optimizer, each, None) for each in private_names.NAMES_WITHOUT_DECAY]
    assert found in ([re.compile("bias"), None], [None, ["bias"]])


@pytest.mark.parametrize("of", [keras.optimizers, tf_keras.optimizers, tf_keras.optimizers.legacy])
def test_nadam_multiplies_its_momenta(of):
    optimizer = of.Nadam()
    optimizer.apply_gradients([(tf.ones([1]), tf.Variable([1.0]))])
    products = [getattr(optimizer, each, None) for each in private_names.PRODUCTS_OF_NADAM]
    [product] = [each for each in products if each is not None]
    assert 0 < float(product) < 1
    assert getattr(optimizer, private_names.UPDATES_OF_NADAM, 2) == 2


def test_keras_has_its_own():
    callback = keras.callbacks.SwapEMAWeights
    assert callable(getattr(callback, private_names.SWAPPER_OF_AVERAGES))
