"""A log of interactions in numpy columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Interactions:
    """Users who took items at times; rows are ordered by time.

    Numpy uses positions (`users`, `items`), which index the ids of this log. The model gets the ids
    themselves, never positions, so it needs no vocabulary.

    Attributes:
        users: int64 `[n]`, positions in `user_ids`.
        items: int64 `[n]`, positions in `item_ids`.
        times: int64 `[n]`, seconds since 1970, ascending.
        user_ids: `[num_users]` strings, each id once.
        item_ids: `[num_items]` strings, each id once.
    """

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    times: NDArray[np.int64]
    user_ids: NDArray[np.object_]
    item_ids: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.times)

    @classmethod
    def from_ids(
        cls, users: Sequence[str], items: Sequence[str], times: Sequence[int] | NDArray[np.int64]
    ) -> Interactions:
        """Numbers the ids and sorts the rows by time. Rows with equal times keep their order."""
        seconds = np.asarray(times, np.int64)
        order = np.argsort(seconds, kind="stable")
        user_positions, user_ids = _number(users)
        item_positions, item_ids = _number(items)
        return cls(
            users=user_positions[order],
            items=item_positions[order],
            times=seconds[order],
            user_ids=user_ids,
            item_ids=item_ids,
        )

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Interactions:
        """Returns the chosen rows, with the same ids."""
        return replace(self, users=self.users[rows], items=self.items[rows], times=self.times[rows])

    def pairs(self) -> NDArray[np.int64]:
        """Returns one number per row's (user, item) `[n]`: equal numbers mean the same pair."""
        return self.users * len(self.item_ids) + self.items


def _number(ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """Numbers the distinct ids in order of first occurrence.

    Uses a dictionary, because numpy would pad every id to the longest one.
    """
    numbers: dict[str, int] = {}
    positions = np.fromiter((numbers.setdefault(i, len(numbers)) for i in ids), np.int64, len(ids))
    return positions, np.array(list(numbers), object)
