"""Tests the op that connects rows to the variable that a tape watches."""

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library


@pytest.mark.parametrize("keys", [tf.constant([4], tf.int64), tf.constant([4]), tf.constant(["4"])])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.bfloat16, tf.int32])
def test_it_passes_rows_through(run, keys, dtype):
    anchor = tf.Variable(tf.zeros([0, 2]))
    rows = tf.cast([[1, 2]], dtype)
    result = run(lambda k, r: library.de_embedding_anchor(anchor.handle, k, r), keys, rows)
    assert result.dtype == dtype
    assert result.shape == [1, 2]
    assert np.all(result.numpy() == rows.numpy())


def test_the_rows_themselves_get_no_gradient():
    anchor, rows = tf.Variable(tf.zeros([0, 2])), tf.ones([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        anchor.read_value()
        result = library.de_embedding_anchor(anchor.handle, tf.constant([4], tf.int64), rows)
    to_anchor, to_rows = tape.gradient(result, [anchor, rows])
    assert to_anchor.indices.numpy().tolist() == [4]
    assert to_rows is None
