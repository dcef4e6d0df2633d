import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking.evaluation import Popularity, auc, evaluate, limits_of, recall_at
from ranking.interactions import Interactions
from ranking.split import TimeSplit, split_by_time
from ranking.synthetic_log import synthetic_log


def brute_auc(scores, positive, candidate):
    wins, pairs = 0.0, 0
    for item in np.flatnonzero(positive):
        for other in np.flatnonzero(candidate & ~positive):
            wins += (scores[item] > scores[other]) + 0.5 * (scores[item] == scores[other])
            pairs += 1
    return wins / pairs if pairs else float("nan")


def brute_recall(k, scores, positive, candidate):
    if not positive.any():
        return float("nan")
    ranked = sorted(np.flatnonzero(candidate), key=lambda item: -scores[item])
    return sum(positive[item] for item in ranked[:k]) / positive.sum()


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 30), st.integers(1, 25))
def test_metrics_agree_with_brute_force(seed, users, items, k):
    rng = np.random.default_rng(seed)
    candidate = rng.random((users, items)) < 0.8
    positive = candidate & (rng.random((users, items)) < 0.3)
    tied = rng.integers(0, 4, (users, items)).astype(np.float32)
    expected = [brute_auc(*row) for row in zip(tied, positive, candidate, strict=True)]
    np.testing.assert_allclose(auc(tied, positive, candidate), expected)
    # The order of equal scores is not defined, so recall is compared without ties.
    scores = rng.permutation(users * items).reshape(users, items).astype(np.float32)
    expected = [brute_recall(k, *row) for row in zip(scores, positive, candidate, strict=True)]
    np.testing.assert_allclose(recall_at(k, scores, positive, candidate), expected)


def test_auc_is_the_same_in_small_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    scores = rng.random((20, 30), np.float32)
    positive = rng.random((20, 30)) < 0.3
    candidate = np.ones((20, 30), bool)
    whole = auc(scores, positive, candidate)
    monkeypatch.setattr("ranking.evaluation._BLOCK", 64)
    np.testing.assert_array_equal(auc(scores, positive, candidate), whole)


def test_recall_never_counts_an_item_that_is_not_ranked():
    positive = np.array([[True, True, False]])
    candidate = np.array([[True, False, False]])
    assert recall_at(3, np.zeros((1, 3), np.float32), positive, candidate) == [0.5]


class Oracle:
    """A model that knows the answers."""

    def __init__(self, split):
        self._answers = np.zeros((len(split.test.user_ids), len(split.test.item_ids)), np.float32)
        self._answers[split.test.users, split.test.items] = 1

    def scores(self, users):
        return self._answers[users]


def test_an_oracle_reaches_exactly_the_stated_limit():
    split = split_by_time(synthetic_log(1, num_users=30, num_items=400, num_events=6000))
    quality = evaluate(split, Oracle(split))
    assert quality.auc == 1.0
    assert quality.recall == pytest.approx(limits_of(split).best_recall)
    assert quality.recall < 1.0  # some user took more items than the list has


def test_new_users_and_new_items_are_measured_and_told_apart():
    log = Interactions.from_ids(
        ["a", "a", "b", "b", "new"], ["x", "y", "x", "fresh", "y"], [0, 1, 2, 3, 4]
    )
    split = TimeSplit(log.take(slice(0, 3)), log.take(slice(3, 5)), repeats=0)
    quality = evaluate(split, Popularity(split.train))
    # Scores are in brackets: the items' counts in `train`. User b took fresh (0) and not y (1):
    # AUC 0. User new took y (1), but neither x (2) nor fresh (0): AUC 1/2.
    assert quality.auc == pytest.approx((0.0 + 0.5) / 2)
    assert (quality.users, quality.known_users) == (2, 0)
    assert np.isnan(quality.known_auc)
    limits = limits_of(split)
    assert (limits.new_users, limits.new_items, limits.known) == (0.5, 0.5, 0.0)
    assert limits.best_recall == 1.0
    assert limits.best_known_recall == 0.5


def test_items_of_the_training_are_not_ranked_again():
    log = Interactions.from_ids(list("abbab"), list("xxyyz"), range(5))
    split = TimeSplit(log.take(slice(0, 3)), log.take(slice(3, 4)), repeats=0)
    # For user a, y (score 1) is ranked against z (0). AUC would be 1/2 if x (2), which user a has
    # in `train`, were ranked too.
    assert evaluate(split, Popularity(split.train)).auc == 1.0


def test_popularity_counts_training_interactions_alone():
    log = Interactions.from_ids(list("abca"), ["x", "x", "y", "z"], range(4))
    scores = Popularity(log.take(slice(0, 3))).scores(np.array([0, 2]))
    assert scores.shape == (2, 3)
    assert dict(zip(log.item_ids, scores[0], strict=True)) == {"x": 2, "y": 1, "z": 0}
    assert (scores[0] == scores[1]).all()


def test_no_more_users_are_measured_than_asked():
    split = split_by_time(synthetic_log(1, num_users=80, num_items=100, num_events=1500))
    assert evaluate(split, Popularity(split.train), max_users=10).users == 10
