import numpy as np
from ranking.batches import NEGATIVES, Batches
from ranking.interactions import Interactions
from ranking.negatives import NegativeSampler
from ranking.split import split_by_time
from ranking.synthetic_log import synthetic_log


def small_split():
    return split_by_time(synthetic_log(3, num_users=40, num_items=60, num_events=900))


def test_negatives_are_training_items_that_the_user_has_not():
    split = small_split()
    rng = np.random.default_rng(0)
    users = np.repeat(split.train.users, 20)
    items, negative = NegativeSampler(split.train).sample(users, rng)
    assert negative.mean() > 0.99
    train_items = set(split.train.items.tolist())
    only_tested = set(split.test.items.tolist()) - train_items
    assert only_tested, "the log must have items that only the test has"
    assert set(items[negative].tolist()) <= train_items
    taken = set(zip(split.train.users.tolist(), split.train.items.tolist(), strict=True))
    drawn = set(zip(users[negative].tolist(), items[negative].tolist(), strict=True))
    assert not drawn & taken


def test_items_of_the_test_are_not_spared():
    # If items that a user takes later were never drawn, the negatives would reveal the answers.
    split = small_split()
    sampler = NegativeSampler(split.train)
    rng = np.random.default_rng(0)
    known = np.isin(split.test.items, split.train.items)
    later = set(zip(split.test.users[known], split.test.items[known], strict=True))
    users = np.repeat(np.unique(split.test.users[known]), 600)
    items, negative = sampler.sample(users, rng)
    drawn = set(zip(users[negative], items[negative], strict=True))
    assert len(drawn & later) > 0.9 * len(later)


def test_every_training_item_the_user_has_not_is_about_as_likely():
    train = Interactions.from_ids(["a", "a", "b", "b", "b"], list("xyxzw"), range(5))
    items, negative = NegativeSampler(train).sample(
        np.zeros(6000, np.int64), np.random.default_rng(0)
    )
    assert negative.all()
    counts = dict(zip(*np.unique(train.item_ids[items], return_counts=True), strict=True))
    assert set(counts) == {"z", "w"}
    assert abs(counts["z"] - 3000) < 300


def test_a_user_who_has_every_item_gets_no_negative():
    train = Interactions.from_ids(["a", "a", "b"], list("xyx"), range(3))
    items, negative = NegativeSampler(train).sample(np.array([0, 1]), np.random.default_rng(0))
    assert negative.tolist() == [False, True]
    assert train.item_ids[items[1]] == "y"


def test_an_epoch_has_every_interaction_once_with_its_negatives():
    split = small_split()
    batches = Batches(split.train, batch_size=100, seed=1)
    users, items, labels = (
        np.concatenate(column) for column in zip(*batches.positions(), strict=True)
    )
    positive = labels == 1
    pairs = users * len(split.train.item_ids) + items
    assert sorted(pairs[positive]) == sorted(split.train.pairs())
    assert 0.98 * NEGATIVES <= (~positive).sum() / positive.sum() <= NEGATIVES
    assert not set(pairs[~positive]) & set(pairs[positive])
    assert len(list(batches.positions())) == len(batches)


def test_an_epoch_is_a_function_of_seed_and_number():
    train = small_split().train

    def first(seed, epoch):
        batches = Batches(train, batch_size=64, seed=seed)
        batches.epoch = epoch
        return next(batches.positions())[1].tolist()

    assert first(1, 2) == first(1, 2)
    assert first(1, 2) != first(1, 3)
    assert first(1, 2) != first(2, 2)


def test_the_dataset_names_the_ids_of_the_positions():
    train = small_split().train
    batches = Batches(train, batch_size=64, seed=0)
    dataset = batches.dataset()
    assert int(dataset.cardinality()) == len(batches)
    ids, labels = next(iter(dataset))
    users, items, expected = next(batches.positions())
    assert [i.decode() for i in ids["user_id"].numpy()] == train.user_ids[users].tolist()
    assert [i.decode() for i in ids["item_id"].numpy()] == train.item_ids[items].tolist()
    assert labels.numpy().tolist() == expected.tolist()
