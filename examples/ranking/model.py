"""The ranking model: a table of users, a table of items, and the similarity of their rows."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import de_core as de
from ranking.interactions import Interactions

_SPREAD = 0.02  # standard deviation of an untrained row


def build_model(dim: int, seed: int = 0) -> keras.Model:
    """Builds and compiles the model.

    The inputs are the ids `user_id` and `item_id`, strings `[n]`. The output `[n]` is a score
    between 0 and 1. The tables are named `user` and `item`. There is no vocabulary and no number of
    rows: an id gets its row in the first training step that contains it.

    Args:
        dim: length of a user's row. An item's row has one more number, its popularity.
        seed: seed of the initial rows.
    """
    users = de.layers.Embedding(
        dim,
        key_dtype=tf.string,
        initializer=keras.initializers.RandomNormal(stddev=_SPREAD, seed=seed),
        name="user",
    )
    items = de.layers.Embedding(
        dim + 1,
        key_dtype=tf.string,
        initializer=keras.initializers.RandomNormal(stddev=_SPREAD, seed=seed + 1),
        name="item",
    )
    user_id = keras.Input(shape=(), dtype="string", name="user_id")
    item_id = keras.Input(shape=(), dtype="string", name="item_id")
    item = items(item_id)
    likeness = keras.layers.Dense(1, kernel_initializer="ones", name="likeness")
    logit = likeness(users(user_id) * item[:, :-1])[:, 0] + item[:, -1]
    score = keras.layers.Activation("sigmoid", name="score")(logit)
    model = keras.Model({"user_id": user_id, "item_id": item_id}, score, name="ranking")
    model.compile(
        optimizer=de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01)),
        loss="binary_crossentropy",
    )
    return model


class ModelScorer:
    """Scores all items of a log with one matrix product, for the evaluation.

    Omits the model's sigmoid, which does not change the order.
    """

    def __init__(self, model: keras.Model, log: Interactions) -> None:
        self._users = model.get_layer("user")
        self._user_ids = log.user_ids
        weights, offset = model.get_layer("likeness").get_weights()
        items = model.get_layer("item")(tf.constant(log.item_ids, tf.string)).numpy()
        self._items = (items[:, :-1] * weights[:, 0]).T
        self._appeal = items[:, -1] + offset

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores every item for each user; `users` `[n]` gives `[n, num_items]`."""
        rows = self._users(tf.constant(self._user_ids[users], tf.string)).numpy()
        return rows @ self._items + self._appeal
