"""The best results that any model can reach on a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranking.evaluation import LIST_LENGTH
from ranking.split import TimeSplit


@dataclass(frozen=True)
class Limits:
    """How new the test interactions are to a model, and the best recall that any model can reach.

    Attributes:
        new_users: fraction of interactions by a user that training never saw.
        new_items: fraction of interactions with an item that training never saw.
        known: fraction of interactions whose user and item training saw.
        per_user: mean number of training interactions per user.
        best_recall: recall of a list that begins with the user's test items.
        best_known_recall: recall of such a list without items that training never saw.
    """

    new_users: float
    new_items: float
    known: float
    per_user: float
    best_recall: float
    best_known_recall: float

    def __str__(self) -> str:
        return (
            f"What limits these numbers: {self.new_users:.0%} of the test interactions are of "
            f"users never seen in training, for whom only an item's general appeal is known; "
            f"{self.new_items:.0%} are with items never seen, which keep their initial row; "
            f"{self.known:.0%} have both ids known, learned from {self.per_user:.0f} interactions "
            f"a user on average. No list of {LIST_LENGTH} can reach a recall above "
            f"{self.best_recall:.3f} here, nor above {self.best_known_recall:.3f} with items seen "
            f"in training."
        )


def limits_of(split: TimeSplit) -> Limits:
    """Computes the limits of `split`."""
    train, test = split.train, split.test
    new_user = ~np.isin(test.users, train.users)
    new_item = ~np.isin(test.items, train.items)
    users, rows = np.unique(test.users, return_inverse=True)
    taken = np.bincount(rows, minlength=len(users))
    known_taken = np.bincount(rows, weights=~new_item, minlength=len(users))
    return Limits(
        new_users=float(new_user.mean()),
        new_items=float(new_item.mean()),
        known=float((~new_user & ~new_item).mean()),
        per_user=len(train) / len(np.unique(train.users)),
        best_recall=float((np.minimum(taken, LIST_LENGTH) / taken).mean()),
        best_known_recall=float((np.minimum(known_taken, LIST_LENGTH) / taken).mean()),
    )
