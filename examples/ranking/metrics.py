"""Two exact ranking metrics over all items: AUC and recall at k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 24  # scores compared at a time, to limit memory


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
