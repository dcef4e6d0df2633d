"""Batches of ids and labels for one epoch after another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ranking.interactions import Interactions
from ranking.negatives import NegativeSampler

NEGATIVES = 4  # per interaction


class Batches:
    """Training interactions in a new order each epoch, with newly drawn negatives.

    Order and negatives depend only on (seed, epoch). So a resumed run sees the same batches as an
    uninterrupted one.

    Attributes:
        epoch: the epoch of the next pass over `dataset`.
    """

    def __init__(self, train: Interactions, *, batch_size: int, seed: int) -> None:
        self.epoch = 0
        self._train = train
        self._negatives = NegativeSampler(train)
        # A step holds complete interactions: each with all its negatives.
        self._interactions = max(1, batch_size // (1 + NEGATIVES))
        self._seed = seed

    def __len__(self) -> int:
        return -(-len(self._train) // self._interactions)

    def dataset(self) -> tf.data.Dataset:
        """Pairs of `{"user_id": string [n], "item_id": string [n]}` and labels, float32 `[n]`."""
        signature = tuple(
            tf.TensorSpec([None], dtype) for dtype in (tf.int64, tf.int64, tf.float32)
        )
        user_ids = tf.constant(self._train.user_ids, tf.string)
        item_ids = tf.constant(self._train.item_ids, tf.string)

        def name(users: tf.Tensor, items: tf.Tensor, labels: tf.Tensor) -> tuple[dict, tf.Tensor]:
            ids = {"user_id": tf.gather(user_ids, users), "item_id": tf.gather(item_ids, items)}
            return ids, labels

        batches = tf.data.Dataset.from_generator(self.positions, output_signature=signature)
        batches = batches.apply(tf.data.experimental.assert_cardinality(len(self)))
        return batches.map(name).prefetch(2)

    def positions(
        self,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
        """Yields batches of positions in the log's ids: users, items and labels, `[n]` each."""
        rng = np.random.default_rng([self._seed, self.epoch])
        order = rng.permutation(len(self._train))
        for start in range(0, len(order), self._interactions):
            rows = order[start : start + self._interactions]
            users = self._train.users[rows]
            others = np.repeat(users, NEGATIVES)
            items, negative = self._negatives.sample(others, rng)
            others, items = others[negative], items[negative]
            yield (
                np.concatenate([users, others]),
                np.concatenate([self._train.items[rows], items]),
                np.repeat(np.float32([1, 0]), [len(users), len(others)]),
            )
