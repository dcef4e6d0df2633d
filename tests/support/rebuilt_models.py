"""Subclassed models, which Keras rebuilds when it loads them: see `test_rebuilt_models.py`.

As a program, it loads a model from a folder and compares its answers with the files beside it.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import tensorflow as tf

import de_core as de
from de_core.base.keras import keras

NUMBERS = tf.constant([[1, 2**40], [3, 0]], tf.int64)
WORDS = tf.constant([["red", "blue"], ["", "green"]])


@keras.saving.register_keras_serializable(package="de_core_tests")
def field(ids):
    return tf.cast(ids % 2, tf.int64)


class Scored(keras.Model):
    """Dense layers on the result of `rows`, which are built in the first call."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.hidden = keras.layers.Dense(3)
        self.score = keras.layers.Dense(1)

    def call(self, inputs):
        rows = self.rows(inputs)
        return self.score(self.hidden(tf.reshape(rows, [tf.shape(rows)[0], self.width])))


@keras.saving.register_keras_serializable(package="de_core_tests")
class OfNumbers(Scored):
    width = 8

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.table = de.layers.Embedding(4, initializer="uniform", name="numbers")

    def rows(self, ids):
        return self.table(ids)


@keras.saving.register_keras_serializable(package="de_core_tests")
class OfMaskedWords(Scored):
    width = 4

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.table = de.layers.Embedding(
            4, tf.string, initializer="uniform", mask_key="", name="words"
        )
        self.mean = keras.layers.GlobalAveragePooling1D()

    def rows(self, ids):
        return self.mean(self.table(ids))


@keras.saving.register_keras_serializable(package="de_core_tests")
class OfNamedInputs(Scored):
    width = 12

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.pooled = de.layers.SquashedEmbedding(4, "int32", initializer=0.5, name="squashed")
        self.fields = de.layers.FieldWiseEmbedding(2, 2, field, initializer=0.5, name="by_field")
        self.words = de.layers.Embedding(
            4, tf.string, combiner="std", initializer="normal", name="pooled_words"
        )

    def rows(self, inputs):
        numbers = self.pooled(tf.cast(inputs["numbers"], tf.int32))
        fields = tf.reshape(self.fields(inputs["numbers"]), [-1, 4])
        return tf.concat([numbers, fields, self.words(inputs["words"])], 1)


class Tower(keras.layers.Layer):
    """Creates its tables in `build`, and uses the library's functions instead of its layers."""

    def build(self, _):
        self.numbers = de.Variable(dim=4, initializer="uniform", name="looked_up")
        self.words = de.Variable("string", dim=2, initializer="uniform", name="sparse")

    def call(self, inputs):
        numbers, words = inputs
        ragged = tf.RaggedTensor.from_tensor(words)
        first = de.embedding_lookup_unique(self.numbers, numbers[:, 0], max_norm=9.0)
        return tf.concat([first, de.safe_embedding_lookup_sparse(self.words, ragged)], 1)


@keras.saving.register_keras_serializable(package="de_core_tests")
class OfVariables(Scored):
    width = 6

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.tower = Tower()

    def rows(self, inputs):
        return self.tower(inputs)


INPUTS = {
    OfNumbers: NUMBERS,
    OfMaskedWords: WORDS,
    OfNamedInputs: {"numbers": NUMBERS, "words": WORDS},
    OfVariables: (NUMBERS, WORDS),
}


def train_on(model, inputs):
    """Trains a model for three steps and returns its answers."""
    model.fit(inputs, tf.ones([2, 1]), epochs=3, verbose=0)
    return model(inputs).numpy()


def check(folder, name):
    """Asserts that a model answers and trains as before it was saved."""
    warnings.simplefilter("error", UserWarning)
    [inputs] = [inputs for each, inputs in INPUTS.items() if each.__name__ == name]
    model = keras.models.load_model(folder / f"{name}.keras")
    np.testing.assert_array_equal(model(inputs), np.load(folder / f"{name}.npy"))
    wanted = np.load(folder / f"{name}_later.npy")
    np.testing.assert_allclose(train_on(model, inputs), wanted, rtol=1e-5)


if __name__ == "__main__":
    check(Path(sys.argv[1]), sys.argv[2])
