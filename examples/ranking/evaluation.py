"""Measures how well a scorer ranks the items that users took after the cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ranking.interactions import Interactions
from ranking.metrics import auc, recall_at
from ranking.split import TimeSplit

LIST_LENGTH = 20
_USERS_AT_ONCE = 256


class Scorer(Protocol):
    """Scores items; the model and the baseline do this."""

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores every item of the log for each user; `users` `[n]` gives `[n, num_items]`."""


@dataclass(frozen=True)
class Quality:
    """Means over users of the test split.

    Attributes:
        auc: chance that an item the user took ranks above an item the user did not take.
        recall: fraction of a user's test items among the 20 highest scores.
        known_auc: `auc` over known users and known items only; NaN if there are none.
        known_recall: `recall` over known users and known items only; NaN if there are none.
        users: number of measured users.
        known_users: number of measured users who are known and took a known item.
    """

    auc: float
    recall: float
    known_auc: float
    known_recall: float
    users: int
    known_users: int


def evaluate(split: TimeSplit, scorer: Scorer, *, max_users: int = 5000, seed: int = 0) -> Quality:
    """Ranks every item of the log for users of the test split, except their training items.

    This includes new items and new users: the scorer must score ids that it never saw.

    Args:
        split: the divided log.
        scorer: ranks the items.
        max_users: largest number of measured users; if there are more, this many are drawn.
        seed: seed of this draw.
    """
    users = np.unique(split.test.users)
    if len(users) > max_users:
        users = np.sort(np.random.default_rng(seed).choice(users, max_users, replace=False))
    known_user = np.isin(users, split.train.users)
    known_item = np.isin(np.arange(len(split.train.item_ids)), split.train.items)

    columns = []
    for start in range(0, len(users), _USERS_AT_ONCE):
        batch = users[start : start + _USERS_AT_ONCE]
        scores = scorer.scores(batch)
        positive = _took(split.test, batch)
        candidate = ~_took(split.train, batch)
        known = positive & known_item & known_user[start : start + len(batch), None]
        among = candidate & ~(positive & ~known)
        columns.append(
            [
                auc(scores, positive, candidate),
                recall_at(LIST_LENGTH, scores, positive, candidate),
                auc(scores, known, among),
                recall_at(LIST_LENGTH, scores, known, among),
            ]
        )
    measures = np.hstack(columns)
    return Quality(
        *(_mean(measure) for measure in measures),
        users=len(users),
        known_users=int((~np.isnan(measures[3])).sum()),
    )


def _took(log: Interactions, users: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns which items each user has in `log`, `[n, num_items]`."""
    row_of_user = np.full(len(log.user_ids), -1)
    row_of_user[users] = np.arange(len(users))
    rows = row_of_user[log.users]
    taken = np.zeros((len(users), len(log.item_ids)), bool)
    taken[rows[rows >= 0], log.items[rows >= 0]] = True
    return taken


def _mean(values: NDArray[np.float64]) -> float:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")
