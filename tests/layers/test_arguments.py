"""The arguments of `keras.layers.Embedding`, in our layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

IDS = np.array([[0, 3, 3], [999, 0, 7]])


def test_the_names_of_keras_mean_the_same_as_ours():
    layer = de.layers.Embedding(
        input_dim=1000, output_dim=8, embeddings_initializer="ones", mask_zero=True
    )
    assert (layer.table.dim, layer.mask_key) == (8, 0)
    np.testing.assert_array_equal(layer(IDS), np.ones([2, 3, 8]))
    np.testing.assert_array_equal(layer.compute_mask(tf.constant(IDS)), IDS != 0)
    again = de.layers.Embedding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


def test_the_height_gives_the_variance_that_it_gives_in_keras():
    ours = de.layers.Embedding(
        input_dim=1000, output_dim=8, embeddings_initializer="glorot_uniform"
    )
    theirs = keras.layers.Embedding(1000, 8, embeddings_initializer="glorot_uniform")
    ids = np.arange(1000)
    assert np.std(ours(ids)) == pytest.approx(np.std(theirs(ids)), rel=0.05)


def test_an_id_beyond_the_height_gets_a_row():
    layer = de.layers.Embedding(input_dim=10, output_dim=2)
    assert layer(np.array([2**40])).shape == (1, 2)


def test_padding_of_either_layer_gives_the_same_answer():
    answers = []
    for layer in (
        keras.layers.Embedding(10, 2, embeddings_initializer="ones", mask_zero=True),
        de.layers.Embedding(output_dim=2, embeddings_initializer="ones", mask_zero=True),
    ):
        model = keras.Sequential([keras.Input([3], dtype="int64"), layer])
        model.add(keras.layers.GlobalAveragePooling1D())
        answers.append(model(np.array([[1, 0, 0], [1, 2, 0]])).numpy())
    np.testing.assert_allclose(*answers)


@pytest.mark.parametrize(
    ("positional", "named", "sentence"),
    [
        ((1000, 8), {}, r"write Embedding\(8\).*Received: dim=1000 .*key_dtype=8"),
        ((1000,), {"output_dim": 8}, "`dim` or `output_dim`, not both"),
        ((), {"dim": 8, "output_dim": 8}, "`dim` or `output_dim`, not both"),
        ((8,), {"initializer": "ones", "embeddings_initializer": "ones"}, "`initializer` or"),
        ((8, tf.string), {"mask_zero": True}, "by `mask_key` alone"),
        ((8,), {"mask_zero": True, "mask_key": 5}, "by `mask_key` alone"),
        ((8,), {"embeddings_constraint": "unit_norm"}, "by `max_norm`"),
        ((8,), {"weights": [np.ones([3, 8])]}, "upsert"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(positional, named, sentence):
    with pytest.raises(TypeError, match=sentence):
        de.layers.Embedding(*positional, **named)


def test_arguments_that_keras_leaves_out_are_left_out():
    layer = de.layers.Embedding(8, mask_zero=False, embeddings_constraint=None, lora_rank=None)
    assert layer.mask_key is None
