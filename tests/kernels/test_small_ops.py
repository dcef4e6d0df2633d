"""Tests ops of one purpose each: the anchor of rows, strings as words, and a step's settings."""

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library


def test_the_rows_of_an_anchor_get_no_gradient():
    anchor, rows = tf.Variable(tf.zeros([0, 2])), tf.ones([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        anchor.read_value()
        result = library.de_embedding_anchor(anchor.handle, tf.constant([4], tf.int64), rows)
    to_anchor, to_rows = tape.gradient(result, [anchor, rows])
    assert to_anchor.indices.numpy().tolist() == [4]
    assert to_rows is None


def test_strings_come_back_from_their_words():
    rng = np.random.default_rng(0)
    strings = [rng.bytes(length) for length in (0, 1, 7, 8, 9, 0, 16, 100_001, 0)]
    words, lengths = library.de_strings_to_words(tf.constant(strings))
    assert lengths.numpy().tolist() == [len(each) for each in strings]
    assert len(words) == sum(-(-len(each) // 8) for each in strings)
    padded = b"".join(each.ljust(-(-len(each) // 8) * 8, b"\0") for each in strings)
    assert words.numpy().tobytes() == padded
    assert library.de_words_to_strings(words, lengths).numpy().tolist() == strings


def test_strings_of_unknown_shape_have_lengths_of_one_dimension():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
    def there_and_back(strings):
        words, lengths = library.de_strings_to_words(strings)
        return words, lengths, library.de_words_to_strings(words, lengths)

    shapes = [each.shape.as_list() for each in there_and_back.get_concrete_function().outputs]
    assert shapes == [[None]] * 3


def test_no_strings_are_no_words():
    words, lengths = library.de_strings_to_words(tf.zeros([0], tf.string))
    assert words.shape == lengths.shape == library.de_words_to_strings(words, lengths).shape == [0]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([8, 9], "length 9 of string 1 with 1 words left"),
        ([-1], "length -1 of string 0"),
        ([2**63 - 1], "length 9223372036854775807 of string 0 with 2 words left"),
        ([8], "1 lengths, and 1 words too many"),
    ],
)
def test_lengths_of_other_words_are_an_error(lengths, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"Received: {message}"):
        library.de_words_to_strings([1, 2], tf.constant(lengths, tf.int64))


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
