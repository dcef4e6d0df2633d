"""Splits a log by time: trains on the past, tests on the future."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranking.errors import DataError
from ranking.interactions import Interactions


@dataclass(frozen=True)
class TimeSplit:
    """A log divided at one time.

    Attributes:
        train: every interaction before the cut.
        test: the interactions from the cut on with a (user, item) pair that is not in `train`, each
            pair once. It includes users and items that `train` does not have.
        repeats: number of interactions after the cut with a pair of `train`, or a repeated pair of
            the test. A model could rank such items by remembering them, without learning tastes.
    """

    train: Interactions
    test: Interactions
    repeats: int


def split_by_time(log: Interactions, test_share: float = 0.2) -> TimeSplit:
    """Cuts `log` in two. About `test_share` of its rows come after the cut.

    Rows with equal times stay together.

    Raises:
        DataError: the log has only one time, or no new pair after the cut.
    """
    position = int(len(log) * (1.0 - test_share))
    position = min(position, len(log) - 1)
    cut = int(np.searchsorted(log.times, log.times[position], side="left"))
    if cut == 0:  # most of the log has the first time: cut after it
        cut = int(np.searchsorted(log.times, log.times[position], side="right"))
    if cut == len(log):
        raise DataError(
            f"A log must have at least two different times to be split by time. Received: "
            f"{len(log)} interactions, all at second {log.times[0]}; check the time column."
        )
    train, later = log.take(slice(0, cut)), log.take(slice(cut, None))
    _, first = np.unique(later.pairs(), return_index=True)
    first = np.sort(first)
    test = later.take(first[~np.isin(later.pairs()[first], train.pairs())])
    if len(test) == 0:
        raise DataError(
            f"The test split must hold a (user, item) pair that training lacks. Received: "
            f"{len(later)} interactions after the cut, all repeats; give a longer log."
        )
    return TimeSplit(train, test, repeats=len(later) - len(test))
