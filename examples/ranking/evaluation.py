"""Measures how well a scorer ranks the items that users took after the cut, beside a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ranking.interactions import Interactions
from ranking.split import TimeSplit

LIST_LENGTH = 20
_USERS_AT_ONCE = 256
_BLOCK = 1 << 24  # scores compared at a time, to limit memory


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


def auc(
    scores: NDArray[np.float32], positive: NDArray[np.bool_], candidate: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Returns the chance that a positive ranks above a negative of the same user; ties count half.

    Args:
        scores: `[users, items]`.
        positive: True for the items that each user took, `[users, items]`.
        candidate: True for the items to rank for each user, `[users, items]`. Candidates that are
            not positives are negatives.

    Returns:
        One number per user, `[users]`; NaN for a user without positives or without negatives.
    """
    negative = candidate & ~positive
    rows, columns = np.nonzero(positive)
    wins = np.empty(len(rows))
    step = max(1, _BLOCK // scores.shape[1])
    for start in range(0, len(rows), step):
        row, column = rows[start : start + step], columns[start : start + step]
        own = scores[row, column][:, None]
        below = np.count_nonzero((scores[row] < own) & negative[row], axis=1)
        equal = np.count_nonzero((scores[row] == own) & negative[row], axis=1)
        wins[start : start + step] = below + 0.5 * equal
    total = np.bincount(rows, weights=wins, minlength=len(scores))
    comparisons = negative.sum(axis=1) * positive.sum(axis=1)
    return np.divide(total, comparisons, out=np.full(len(scores), np.nan), where=comparisons > 0)


def recall_at(
    k: int,
    scores: NDArray[np.float32],
    positive: NDArray[np.bool_],
    candidate: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Returns the fraction of a user's positives among the k best-scored candidates.

    Args:
        k: length of the list.
        scores: `[users, items]`.
        positive: True for the items that each user took, `[users, items]`.
        candidate: True for the items to rank for each user, `[users, items]`.

    Returns:
        One number per user, `[users]`; NaN for a user without positives.
    """
    k = min(k, scores.shape[1])
    ranked = np.where(candidate, scores, -np.inf)
    top = np.argpartition(-ranked, k - 1, axis=1)[:, :k]
    hits = np.take_along_axis(positive & candidate, top, axis=1).sum(axis=1)
    count = positive.sum(axis=1)
    return np.divide(hits, count, out=np.full(len(scores), np.nan), where=count > 0)


class Popularity:
    """Scores an item by its number of training interactions, the same for every user."""

    def __init__(self, train: Interactions) -> None:
        counts = np.bincount(train.items, minlength=len(train.item_ids))
        self._scores = counts.astype(np.float32)

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores every item for each user. `users` has shape `[n]`, the result `[n, num_items]`."""
        return np.broadcast_to(self._scores, (len(users), len(self._scores)))


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
