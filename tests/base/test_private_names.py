"""The private names of TensorFlow and Keras that the library uses still exist."""

import keras
import tensorflow as tf
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


def test_keras_has_its_own():
    callback = keras.callbacks.SwapEMAWeights
    assert callable(getattr(callback, private_names.SWAPPER_OF_AVERAGES))
