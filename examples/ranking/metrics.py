"""Two measures of a ranking, exact over all items: AUC and recall at k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 24  # scores compared at a time, to bound memory


def auc(
    scores: NDArray[np.float32], positive: NDArray[np.bool_], candidate: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The chance that a positive outranks a negative of the same user; a tie counts half.

    Args:
        scores: `[users, items]`.
        positive: which items each user took, `[users, items]`.
        candidate: which items are ranked for each user, `[users, items]`; the negatives are the
            candidates that are no positives.

    Returns:
        One number a user, `[users]`; NaN where a user has no positive or no negative.
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
    """The share of a user's positives among the k candidates that score highest.

    Args:
        k: length of the list.
        scores: `[users, items]`.
        positive: which items each user took, `[users, items]`.
        candidate: which items are ranked for each user, `[users, items]`.

    Returns:
        One number a user, `[users]`; NaN where a user has no positive.
    """
    k = min(k, scores.shape[1])
    ranked = np.where(candidate, scores, -np.inf)
    top = np.argpartition(-ranked, k - 1, axis=1)[:, :k]
    hits = np.take_along_axis(positive & candidate, top, axis=1).sum(axis=1)
    count = positive.sum(axis=1)
    return np.divide(hits, count, out=np.full(len(scores), np.nan), where=count > 0)
