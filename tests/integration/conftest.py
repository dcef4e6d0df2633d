"""Small data with something to learn, for Keras models over tables."""

import keras
import numpy as np
import pytest

import de_core as de


@pytest.fixture(scope="session")
def ratings():
    """Users, items (int64 [512]) and whether they please (float32 [512, 1])."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 40, size=512) + 2**40
    items = rng.integers(0, 30, size=512)
    pleases = (users + items) % 3 == 0
    return users.astype(np.int64), items.astype(np.int64), pleases.astype(np.float32)[:, None]


@pytest.fixture
def ratings_model():
    """Makes compiled models over `ratings`'s users that all begin with the same weights."""

    def make():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input([], dtype="int64"),
                de.layers.Embedding(4, initializer="normal", name="users"),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
        return model

    return make
