"""One op computes the settings of an optimizer step."""

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library

CONSTANTS = tf.constant([0.0, 0.9, 0.999, 1e-7, 0.9, 0.999], tf.float64)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("step", [1, 7, 10**6, 2**40])
def test_powers_are_computed_in_the_rows_dtype(dtype, step):
    rate = tf.constant(0.1, dtype)
    settings = library.de_step_settings(
        rate, tf.constant(step, tf.int64), CONSTANTS, powers=[4, 5], Tpowers=dtype
    )
    powers = tf.pow(tf.cast(CONSTANTS[4:], dtype), tf.cast(step, dtype))
    wanted = [float(rate), *CONSTANTS[1:4], *tf.cast(powers, tf.float64)]
    np.testing.assert_allclose(settings, wanted, rtol=1e-15 if dtype == tf.float64 else 2e-7)


@pytest.mark.parametrize(
    ("rate", "constants", "powers", "message"),
    [
        (0.1, [0.0, 0.9], [2], "powers must be positions in constants.*Received: 2 of 2"),
        (0.1, [0.0, 0.9], [-1], "Received: -1 of 2"),
        (0.1, [], [], "constants must not be empty.*Received: 1 rates, 1 steps and 0 constants"),
        ([0.1, 0.2], [0.0], [], "Received: 2 rates"),
    ],
)
def test_bad_inputs_are_refused(rate, constants, powers, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        library.de_step_settings(
            tf.constant(rate),
            tf.constant(1, tf.int64),
            tf.constant(constants, tf.float64),
            powers=powers,
            Tpowers=tf.float32,
        )
