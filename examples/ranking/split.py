"""Splitting a log by time: train on what came before, test on what came after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranking.errors import DataError
from ranking.interactions import Interactions


@dataclass(frozen=True)
class TimeSplit:
    """A log cut at one moment.

    Attributes:
        train: every interaction before the cut.
        test: the interactions from the cut on whose (user, item) pair is not in `train`, each
            pair once. Users and items that `train` never had are among them.
        repeats: how many interactions after the cut were of a pair in `train` or a second time
            in the test; they would measure memory of a purchase, not ranking.
    """

    train: Interactions
    test: Interactions
    repeats: int


def split_by_time(log: Interactions, test_share: float = 0.2) -> TimeSplit:
    """Cuts `log` so that about `test_share` of its rows come after; one time is never cut in two.

    Raises:
        DataError: the log has no two different times, or no new pair after the cut.
    """
    position = int(len(log) * (1.0 - test_share))
    position = min(position, len(log) - 1)
    cut = int(np.searchsorted(log.times, log.times[position], side="left"))
    if cut == 0:  # the first moment holds most of the log: cut after it
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
            f"The test split must hold a (user, item) pair that training has not. Received: "
            f"{len(later)} interactions after the cut, all repeats; give a longer log."
        )
    return TimeSplit(train, test, repeats=len(later) - len(test))
