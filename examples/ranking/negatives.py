"""Draws items that a user did not take, from the training data only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ranking.interactions import Interactions

_ROUNDS = 20


class NegativeSampler:
    """Draws training items uniformly, and redraws items that the user has in training.

    It does not use the test split. So it never draws an item that occurs only in the test split,
    but it may draw an item that the user takes in the test split.
    """

    def __init__(self, train: Interactions) -> None:
        self._items = np.unique(train.items)
        self._num_items = len(train.item_ids)
        self._pairs = np.unique(train.pairs())

    def sample(
        self, users: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Draws one item for each user.

        Args:
            users: positions of users, `[n]`.
            rng: random generator.

        Returns:
            The items `[n]` and whether each is a negative `[n]`. False if twenty draws gave only
            items that the user has, for example because the user has all items.
        """
        items = rng.choice(self._items, len(users))
        taken = self._is_positive(users, items)
        for _ in range(_ROUNDS):
            if not taken.any():
                break
            items[taken] = rng.choice(self._items, int(taken.sum()))
            taken[taken] = self._is_positive(users[taken], items[taken])
        return items, ~taken

    def _is_positive(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
        pairs = users * self._num_items + items
        places = np.searchsorted(self._pairs, pairs)
        return self._pairs[np.minimum(places, len(self._pairs) - 1)] == pairs
