"""The baseline: everyone is shown what was popular in training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ranking.interactions import Interactions


class Popularity:
    """Scores an item by its number of training interactions, the same for every user."""

    def __init__(self, train: Interactions) -> None:
        counts = np.bincount(train.items, minlength=len(train.item_ids))
        self._scores = counts.astype(np.float32)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores `[n, num_items]` of every item for each of `users` `[n]`; unseen items get 0."""
        return np.broadcast_to(self._scores, (len(users), len(self._scores)))
