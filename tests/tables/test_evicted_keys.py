"""`take_evicted_keys` returns the keys of evicted rows, each once, and counts those it lost."""

from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
import tensorflow as tf
from hypothesis import given, settings

import de_core as de

RUN = {
    "insert": lambda users, keys: users.find_or_insert(keys),
    "train": lambda users, keys: users._table.begin_step(keys),
    "remove": lambda users, keys: users.remove(keys),
    "restrict": lambda users, keys: users.restrict(len(keys)),
    "clear": lambda users, _: users.clear(),
}
KEYS = st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True)


def numbers(keys):
    return sorted(int(key) for key in keys.numpy())


@pytest.mark.each_choice
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [tf.int64, tf.int32, tf.string], ids=lambda each: each.name)
@settings(max_examples=15, deadline=None)
@given(script=st.lists(st.tuples(st.sampled_from([*RUN]), KEYS), min_size=5, max_size=30))
def test_keys_that_vanish_are_taken_unless_the_user_removed_them(shards, dtype, script):
    policies = {
        "restrict_policy": de.FrequencyRestrictPolicy,
        "eviction": [de.EvictionLFU(max_rows=18), de.EvictionTTL(steps=4)],
    }
    users = de.Variable(dim=1, key_dtype=dtype, devices=["/CPU:0"] * shards, **policies)
    users.take_evicted_keys(100)
    for verb, keys in script:
        before = {*numbers(users.export()[0]), *(keys if verb in ("insert", "train") else [])}
        RUN[verb](users, tf.as_string(keys) if dtype == tf.string else tf.constant(keys, dtype))
        users.evict_expired()
        gone = before - set(numbers(users.export()[0]))
        evicted, lost = users.take_evicted_keys(100)
        assert numbers(evicted) == ([] if verb in ("remove", "clear") else sorted(gone))
        assert lost == 0


def test_threads_take_each_key_once_and_keys_beyond_the_capacity_are_counted():
    users = de.Variable(dim=1, devices=["/CPU:0"] * 2, eviction=de.EvictionLRU(max_rows=500))
    take = tf.function(lambda: users.take_evicted_keys(400))
    take()

    def work(worker):
        for first in range(worker * 10_000, (worker + 1) * 10_000, 250):
            users.find_or_insert(range(first, first + 250))
            yield take()

    with ThreadPoolExecutor(4) as pool:
        parts = [part for each in pool.map(list, map(work, range(4))) for part in each]
    users.find_or_insert(range(50_000, 60_000))
    parts.append(users.take_evicted_keys(0))
    keys = [key for part, _ in parts for key in numbers(part)]
    assert len(set(keys)) == len(keys) > 400
    assert not tf.reduce_any(users.contains(keys))
    assert len(keys) + sum(int(lost) for _, lost in parts) == users.stats()["evicted"]
    users.find_or_insert(range(70_000, 80_000))
    assert len(users.take_evicted_keys(0)[0]) == 0


def test_a_row_that_moves_to_the_disk_is_not_evicted(tmp_path):
    tier = de.DiskTier(str(tmp_path), memory_bytes=300)
    users = de.Variable(dim=4, tier=tier, restrict_policy=de.TimestampRestrictPolicy)
    users.take_evicted_keys(400)
    users.find_or_insert(range(200))
    users.find_or_insert(range(200, 300))
    assert users.stats()["tier"]["rows_out"] > 100
    assert len(users.take_evicted_keys(400)[0]) == 0
    users.restrict(100)
    assert numbers(users.take_evicted_keys(400)[0]) == list(range(200))


def test_a_table_in_another_process_is_refused():
    users = de.Variable(dim=1, devices=["/job:localhost/replica:0/task:0/device:CPU:0"])
    with pytest.raises(NotImplementedError, match=r"Received: table=.* Ask `contains`"):
        users.take_evicted_keys(1)
