"""The baseline: recommends the most popular items of the training data to everyone."""

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
        """Scores every item for each user. `users` has shape `[n]`, the result `[n, num_items]`."""
        return np.broadcast_to(self._scores, (len(users), len(self._scores)))
