from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from interactions import Interactions, split_by_time, synthetic_log
from train_ranking import (
    NEGATIVES,
    auc_and_recall,
    batches,
    build_model,
    evaluate,
    popularity_of,
    positions,
    scorer_of,
    train_model,
)

import de_core as de


@pytest.fixture(scope="module")
def split():
    return split_by_time(synthetic_log(0, num_ids=80, num_events=3000, num_genres=5))


def trained(train, **changes):
    chosen = {"epochs": 3, "batch_size": 64, "seed": 5, "checkpoint_dir": None, **changes}
    keras.utils.set_random_seed(5)
    model = build_model(4, seed=5)
    train_model(model, train, SimpleNamespace(**chosen))
    return model


@pytest.fixture(scope="module")
def uninterrupted(split):
    return trained(split[0])


def all_scores(model, log):
    return scorer_of(model, log)(np.arange(len(log.user_ids)))


def test_an_epoch_has_each_interaction_once_with_items_that_the_user_has_not(split):
    train, _ = split
    users, items, labels = map(np.concatenate, zip(*positions(train, 512, 0, 1), strict=True))
    pairs = users * len(train.item_ids) + items
    np.testing.assert_array_equal(np.sort(pairs[labels == 1]), np.sort(train.pairs()))
    negatives = pairs[labels == 0]
    assert not np.isin(negatives, train.pairs()).any()
    assert np.isin(items, train.items).all()
    assert 0.9 * NEGATIVES * len(train) < len(negatives) <= NEGATIVES * len(train)
    counts = np.bincount(items[labels == 0])[np.unique(train.items)]
    assert counts.min() > 0  # drawn uniformly, not by popularity


def test_the_seed_and_the_epoch_decide_the_order(split):
    first, same, other = (list(positions(split[0], 512, 0, epoch)) for epoch in (0, 0, 1))
    np.testing.assert_array_equal(first[0][1], same[0][1])
    assert not np.array_equal(first[0][1], other[0][1])


def test_a_user_with_all_items_gets_no_negative():
    train = Interactions.from_ids(["a", "a", "b"], ["x", "y", "x"], [1, 2, 3])
    users, items, labels = map(np.concatenate, zip(*positions(train, 5, 0, 0), strict=True))
    assert set(zip(users[labels == 0], items[labels == 0], strict=True)) == {(1, 1)}


def test_the_dataset_names_the_ids_of_the_positions(split):
    ids, labels = next(iter(batches(split[0], 512, seed=0)))
    users, items, expected = next(positions(split[0], 512, 0, 0))
    np.testing.assert_array_equal(ids["user_id"].numpy().astype(str), split[0].user_ids[users])
    np.testing.assert_array_equal(ids["item_id"].numpy().astype(str), split[0].item_ids[items])
    np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("seed", range(5))
def test_measures_agree_with_brute_force(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 8, 60).astype(np.float32)  # with ties
    positive = rng.random(60) < 0.3
    negative = ~positive & (rng.random(60) < 0.8)
    auc, recall = auc_and_recall(scores, positive, negative)
    wins = [
        (own > other) + (own == other) / 2 for own in scores[positive] for other in scores[negative]
    ]
    assert auc == pytest.approx(np.mean(wins))
    ranked = [n for n in np.argsort(-scores, kind="stable") if positive[n] or negative[n]][:20]
    assert recall == pytest.approx(sum(positive[n] for n in ranked) / positive.sum())
    nothing = np.zeros(60, bool)
    assert np.isnan(auc_and_recall(scores, nothing, negative)).all()


def test_an_oracle_and_newcomers_are_measured_apart(split):
    train, test = split
    took = np.zeros([len(test.user_ids), len(test.item_ids)], np.float32)
    took[test.users, test.items] = 1
    auc, recall, known_auc, _ = evaluate(train, test, lambda users: took[users])
    assert auc == known_auc == 1
    known = np.isin(np.arange(took.shape[1]), train.items)
    auc, _, known_auc, _ = evaluate(train, test, lambda users: took[users] * known - ~known)
    assert auc < known_auc == 1
    assert recall <= 1


def test_popularity_counts_training_interactions(split):
    train, _ = split
    (scores,) = popularity_of(train)(np.array([0]))
    assert scores.sum() == len(train)
    assert scores[train.items[0]] == np.sum(train.items == train.items[0])


def test_only_ids_of_the_training_get_a_row(split, uninterrupted):
    train, _ = split
    assert uninterrupted.get_layer("user").table.size() == len(np.unique(train.users))
    assert uninterrupted.get_layer("item").table.size() == len(np.unique(train.items))


def test_the_scorer_orders_as_the_model_does(split, uninterrupted):
    log = split[0]
    users = np.repeat(np.arange(5), len(log.item_ids))
    items = np.tile(np.arange(len(log.item_ids)), 5)
    ids = {"user_id": log.user_ids[users], "item_id": log.item_ids[items]}
    served = uninterrupted({name: tf.constant(each) for name, each in ids.items()}).numpy()
    scores = scorer_of(uninterrupted, log)(np.arange(5)).ravel()
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), served, rtol=1e-5)


def test_a_run_that_was_stopped_ends_as_one_that_was_not(split, uninterrupted, tmp_path):
    train, _ = split
    first = trained(train, epochs=1, checkpoint_dir=tmp_path)
    assert not np.array_equal(all_scores(first, train), all_scores(uninterrupted, train))
    for _ in range(2):  # the second finds a finished run
        resumed = trained(train, checkpoint_dir=tmp_path)
        np.testing.assert_array_equal(all_scores(resumed, train), all_scores(uninterrupted, train))


def test_training_makes_the_ranking_better(split, uninterrupted):
    before = evaluate(*split, scorer_of(trained(split[0], epochs=0), split[0]))
    after = evaluate(*split, scorer_of(uninterrupted, split[0]))
    assert after[0] > before[0] + 0.05


@pytest.mark.slow
def test_smaller_slots_rank_as_well():
    """Training is exact, so each seed gives the same numbers in every run of a machine."""
    train, test = split_by_time(synthetic_log(0, num_ids=1500, num_events=40_000))

    def results(slot_dtype, optimizer):
        found = []
        for seed in range(5):
            keras.utils.set_random_seed(seed)
            model = build_model(16, seed, optimizer(0.01), slot_dtype)
            options = SimpleNamespace(epochs=3, batch_size=2048, seed=seed, checkpoint_dir=None)
            loss = train_model(model, train, options)[-1]
            found.append((loss, 1 - evaluate(train, test, scorer_of(model, train))[0]))
        return np.array(found)  # a training loss and an error of ranking per seed

    adam = results(None, keras.optimizers.Adam)
    another_seed = adam.std(0, ddof=1)
    rowwise = results(None, de.optimizers.RowwiseAdam)
    assert rowwise.mean(0)[1] < adam.mean(0)[1] + another_seed[1]
    for optimizer, float32 in ((keras.optimizers.Adam, adam), (de.optimizers.RowwiseAdam, rowwise)):
        difference = np.abs(results(tf.bfloat16, optimizer) - float32)
        assert (difference < another_seed / 10).all(), (optimizer, difference)
