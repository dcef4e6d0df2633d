"""Converts strings to words of eight bytes, and back."""

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library


def test_strings_come_back_from_their_words():
    rng = np.random.default_rng(0)
    strings = [rng.bytes(length) for length in (0, 1, 7, 8, 9, 0, 16, 100_001, 0)]
    words, lengths = library.de_strings_to_words(tf.constant(strings))
    assert lengths.numpy().tolist() == [len(each) for each in strings]
    assert len(words) == sum(-(-len(each) // 8) for each in strings)
    padded = b"".join(each.ljust(-(-len(each) // 8) * 8, b"\0") for each in strings)
    assert words.numpy().tobytes() == padded
    assert library.de_words_to_strings(words, lengths).numpy().tolist() == strings


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
