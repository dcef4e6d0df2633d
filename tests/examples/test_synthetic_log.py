import numpy as np
from ranking.split import split_by_time
from ranking.synthetic_log import synthetic_log


def columns(log):
    return log.user_ids[log.users].tolist(), log.item_ids[log.items].tolist(), log.times.tolist()


def test_the_seed_decides_the_log():
    options = {"num_users": 50, "num_items": 50, "num_events": 500}
    assert columns(synthetic_log(4, **options)) == columns(synthetic_log(4, **options))
    assert columns(synthetic_log(4, **options)) != columns(synthetic_log(5, **options))


def test_ids_are_long_tailed():
    log = synthetic_log(0)
    for positions in (log.items, log.users):
        counts = np.sort(np.bincount(positions))[::-1]
        top = counts[: len(counts) // 10].sum() / counts.sum()
        assert top > 0.3
        assert np.median(counts) < 0.8 * counts.mean()


def test_a_user_takes_an_item_once():
    log = synthetic_log(0, num_users=50, num_items=50, num_events=3000)
    assert len(np.unique(log.pairs())) == len(log)


def test_newcomers_occur_in_the_test_split():
    split = split_by_time(synthetic_log(0))
    assert 0.01 < (~np.isin(split.test.users, split.train.users)).mean() < 0.2
    assert 0.01 < (~np.isin(split.test.items, split.train.items)).mean() < 0.2


def test_a_user_prefers_few_kinds_of_items():
    # Users who share an item share others far more often than popularity alone explains. Compare
    # the pairs of users' items with a log whose users were shuffled.
    log = synthetic_log(0, num_users=200, num_items=200, num_events=6000)

    def likeness(users):
        taken = np.zeros((200 + 1, 200 + 1))
        taken[users, log.items] = 1
        taken -= taken.mean(axis=0)
        return np.linalg.svd(taken, compute_uv=False)[:10].sum()

    shuffled = np.random.default_rng(0).permutation(log.users)
    assert likeness(log.users) > 1.2 * likeness(shuffled)


def test_the_smallest_log_that_can_be_asked_for_can_be_made():
    assert len(synthetic_log(0, num_events=100)) > 90
