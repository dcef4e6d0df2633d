"""Tests admission and eviction through a Variable and a layer, and the keys of evicted rows."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings

import de_core as de
from de_core.tables.sharded import TableStep
from tests.support.shims import shims


def train(variable, keys, gradient=1.0):
    keys = tf.constant(keys, variable.key_dtype)
    slices = tf.IndexedSlices(tf.fill([len(keys), variable.dim], gradient), keys)
    TableStep(slices, variable._table, [1.0], "sgd", "sgd", average=False).run()


def let_pass(seconds):
    """Lets time pass at once, in a process of `in_shims`."""
    shims().let_pass(ctypes.c_int64(seconds))


def test_a_key_that_is_not_admitted_reads_as_its_initial_row_and_is_not_stored():
    users = de.Variable(dim=1, initializer="uniform", admission=de.AdmissionCount(3))
    fresh = users.lookup([7]).numpy()
    for _ in range(2):
        train(users, [7, 7])
        assert np.array_equal(users.lookup([7]).numpy(), fresh)
        assert int(users.size()) == 0
    train(users, [7, 7])
    assert users.lookup([7]).numpy()[0, 0] == pytest.approx(fresh[0, 0] - 2)
    assert users.stats()["refused"] == 2


def test_upsert_and_accum_bypass_admission():
    users = de.Variable(dim=1, admission=de.AdmissionCount(9))
    users.upsert([1], [[2.0]])
    users.accum([2], [[0.0]], [[3.0]], [False])
    assert users.lookup([1, 2]).numpy().tolist() == [[2.0], [3.0]]


@pytest.mark.parametrize("admission", [de.AdmissionProbability(0.3, 5), de.AdmissionCount(2)])
def test_admission_is_the_same_on_several_tables(admission):
    admitted = []
    for tables in (1, 3):
        users = de.Variable(dim=1, devices=["/CPU:0"] * tables, admission=admission)
        for step in range(4):
            train(users, range(step * 100, 1000 + step * 100))
        admitted.append(sorted(users.export()[0].numpy().tolist()))
    assert admitted[0] == admitted[1]
    assert 0 < len(admitted[0]) < 1300


def test_a_bloom_filter_admits_no_key_late_and_few_early():
    users = de.Variable(dim=1, admission=de.AdmissionBloom(2, capacity=20_000, error=0.05))
    train(users, range(20_000))
    assert int(users.size()) <= 1000
    train(users, range(20_000))
    assert int(users.size()) == 20_000
    # 6.3 counters of one byte per key, and 15 % more, because keys spread unevenly over 16 shards.
    assert users.memory_usage()["policy"] <= 1.15 * 6.3 * 20_000


@pytest.mark.slow
def test_a_bloom_filter_of_more_than_256_mib_is_saved(tmp_path):
    policy = de.AdmissionBloom(2, capacity=26_000_000)
    users, other = (de.Variable(dim=1, name="users", admission=policy) for _ in range(2))
    users.find_or_insert([1])
    de.checkpoint.save(users, tmp_path)
    de.checkpoint.restore(other, tmp_path)
    other.find_or_insert([1, 2])
    assert other.contains([1, 2]).numpy().tolist() == [True, False]


def test_a_bloom_filter_that_no_snapshot_holds_is_refused():
    policy = de.AdmissionBloom(2, capacity=10**9)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"at most 4000 MiB.*lower capacity"):
        de.Variable(dim=1, admission=policy)


def test_exact_counts_take_16_to_32_bytes_a_key():
    users = de.Variable(dim=1, admission=de.AdmissionCount(5))
    for count in (10_000, 100_000):
        train(users, range(count))
        assert 12 * count < users.memory_usage()["policy"] <= 33 * count


@pytest.mark.parametrize("tables", [1, 3])
def test_a_bounded_table_stays_within_rows_and_bytes(tables):
    users = de.Variable(
        dim=8, devices=["/CPU:0"] * tables, eviction=de.EvictionLRU(max_rows=3000, max_bytes=10**7)
    )
    small = de.Variable(
        dim=8, devices=["/CPU:0"] * tables, eviction=de.EvictionLFU(max_bytes=3 * 2**16)
    )
    for first in range(0, 20_000, 1000):
        for table in (users, small):
            table.upsert(range(first, first + 1000), tf.ones([1000, 8]))
        assert int(users.size()) <= 3000
        assert small.memory_usage()["index"] + int(small.size()) * 40 <= 3 * 2**16
    assert int(users.size()) > 2500
    assert users.stats()["evicted"] > 16_000
    assert int(small.size()) > 1000


@pytest.mark.parametrize("come", ["restored", "reserved", "at once", "removed before"])
def test_a_bound_of_bytes_keeps_as_many_rows_however_they_came(tmp_path, come):
    def new(**arguments):
        return de.Variable(dim=4, name="users", eviction=policy, **arguments)

    policy, rows, few = de.EvictionLRU(max_bytes=2**20), 60_000, tf.ones([1000, 4])
    users = new(init_size=rows if come == "reserved" else 0)
    if come == "restored":
        larger = de.Variable(dim=4, name="users")
        larger.upsert(range(rows), tf.ones([rows, 4]))
        de.checkpoint.save(larger, tmp_path)
        de.checkpoint.restore(users, tmp_path)
    else:
        users.upsert(range(rows), tf.ones([rows, 4]))
    if come == "removed before":
        users.remove(users.export()[0])
    for first in range(rows, rows + 20_000, 1000):
        users.upsert(range(first, first + 1000), few)
        assert bool(tf.reduce_all(users.contains(range(first, first + 1000))))
    assert users.memory_usage()["index"] + int(users.size()) * 24 <= 2**20
    assert int(users.size()) > 14_000  # 50 bytes per row at first, 21,000 rows


def test_tables_share_a_bound_and_keep_to_their_shares():
    items = de.Variable(
        dim=1,
        devices=["/CPU:0"] * 3,
        partitioner=lambda keys, tables: tf.cast(keys // 100, tf.int32) % tables,
        eviction=de.EvictionLRU(max_rows=11),
    )
    for key in [*range(9), *range(100, 103), *range(200, 209)]:
        items.upsert([key], [[1.0]])
    assert [int(items.size(table)) for table in range(3)] == [4, 3, 3]
    kept = sorted(items.export()[0].numpy().tolist())
    assert kept == [5, 6, 7, 8, 100, 101, 102, 206, 207, 208], "each table's newest"


def test_lookups_count_as_uses_where_asked():
    for count_lookups in (False, True):
        users = de.Variable(
            dim=1, eviction=de.EvictionLRU(max_rows=32, count_lookups=count_lookups)
        )
        users.upsert([1], [[1.0]])
        for key in range(100, 140):
            users.lookup([1])
            users.upsert([key], [[1.0]])
        assert bool(users.contains([1])[0]) == count_lookups


def expire_rows():
    users = de.Variable(dim=1, initializer=0.5, eviction=de.EvictionTTL(seconds=3600))
    users.upsert([1, 2], [[1.0], [2.0]])
    let_pass(3000)
    assert users.lookup([1]).numpy().tolist() == [[1.0]]
    let_pass(1000)
    values, exists = users.lookup([1, 2], return_exists=True)
    assert values.numpy().tolist() == [[0.5], [0.5]]
    assert not exists.numpy().any()
    assert len(users.export()[0]) == 0
    train(users, [1])
    assert users.lookup([1]).numpy().tolist() == [[-0.5]]
    users.evict_expired()
    assert int(users.size()) == 1


def test_an_expired_row_starts_again_with_fresh_slots():
    users = de.Variable(dim=1, eviction=de.EvictionTTL(steps=1))

    def step(key):
        slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([key], tf.int64))
        TableStep(slices, users._table, [1.0, 0.0, 0.0], "a", "adagrad", average=False).run()

    step(1)
    first = users.lookup([1]).numpy()
    for _ in range(3):
        step(2)
    step(1)
    assert np.array_equal(users.lookup([1]).numpy(), first)


def expire_strings():
    names = de.Variable(
        key_dtype=tf.string,
        value_dtype=tf.string,
        dim=1,
        admission=de.AdmissionCount(2),
        eviction=de.EvictionTTL(seconds=3600),
    )
    names.upsert(["a"], [["x" * 100]])
    assert names.find_or_insert(["b"]).numpy().tolist() == [[b""]]
    let_pass(3601)
    assert names.lookup(["a"]).numpy().tolist() == [[b""]]
    names.find_or_insert(["a", "b"])
    assert names.contains(["a", "b"]).numpy().tolist() == [False, True]
    names.find_or_insert(["a"])
    assert names.find_or_insert(["a"]).numpy().tolist() == [[b""]]


@pytest.mark.parametrize("expire", [expire_rows, expire_strings])
def test_rows_expire_after_seconds(in_shims, expire):
    in_shims(expire)


def test_scores_are_exported_with_their_keys():
    items = de.Variable(dim=1, devices=["/CPU:0"] * 2, eviction=de.EvictionScore(max_rows=10))
    items.upsert([1, 2, 3], tf.ones([3, 1]))
    items.assign_scores([1, 3, 9], [5, -7, 1])
    keys, scores = items.export_keys_and_scores(100)
    assert dict(zip(keys.numpy().tolist(), scores.numpy().tolist(), strict=True)) == {
        1: 5,
        2: 0,
        3: -7,
    }
    with pytest.raises(ValueError, match="split_size"):
        items.export_keys_and_scores(0)
    with pytest.raises(ValueError, match="shape of `keys`"):
        items.assign_scores([1, 2], [3])
    with pytest.raises(TypeError, match=r"`scores` of table .* must be int64.*dtype=float64"):
        items.assign_scores([1], np.array([1.5]))
    plain = de.Variable(dim=1)
    with pytest.raises(ValueError, match="ranks rows"):
        plain.export_keys_and_scores(1)
    with pytest.raises(ValueError, match="EvictionScore"):
        plain.assign_scores([1], [1])


def test_a_layer_with_policies_is_made_again_of_its_config():
    layer = de.layers.Embedding(
        2,
        restrict_policy=de.TimestampRestrictPolicy,
        admission=de.AdmissionBloom(2, capacity=100),
        eviction=[de.EvictionLFU(max_rows=50), de.EvictionTTL(steps=9)],
    )
    copy = de.layers.Embedding.from_config(layer.get_config())
    assert copy.table.admission == layer.table.admission
    assert copy.table.eviction == layer.table.eviction
    assert isinstance(copy.table.restrict_policy, de.TimestampRestrictPolicy)
    plain = de.layers.Embedding.from_config(de.layers.Embedding(2).get_config())
    assert (plain.table.admission, plain.table.eviction) == (None, ())


def test_a_model_trains_in_fit_with_all_policies():
    layer = de.layers.Embedding(
        4,
        admission=de.AdmissionCount(2),
        eviction=[de.EvictionLRU(max_rows=60), de.EvictionTTL(steps=50)],
    )
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile(de.DynamicEmbeddingOptimizer("adam"), "mse")
    ids = tf.constant(np.random.default_rng(0).integers(0, 100, 640))
    model.fit(ids, tf.ones([640, 1]), epochs=2, verbose=0)
    assert 40 <= int(layer.table.size()) <= 60


@pytest.mark.filterwarnings("ignore:Adafactor has no rule")
def test_an_optimizer_without_a_rule_of_its_own_asks_for_admission_and_counts_steps():
    layer = de.layers.Embedding(
        2, admission=de.AdmissionCount(2), eviction=de.EvictionTTL(steps=2), name="generic"
    )
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adafactor(0.1))
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    for keys, stored in (([1, 2], []), ([1], [1]), ([2], [1, 2]), ([2], [1, 2]), ([2], [2])):
        model.fit(tf.constant(keys, tf.int64), tf.ones([len(keys), 1]), verbose=0)
        assert sorted(layer.table.export()[0].numpy().tolist()) == stored


def test_get_variable_shares_with_equal_policies_and_refuses_others():
    arguments = {"dim": 2, "eviction": de.EvictionLRU(max_rows=9)}
    first = de.get_variable("shared_with_policies", **arguments)
    assert de.get_variable("shared_with_policies", **arguments) is first
    assert de.get_variable("shared_with_policies", dim=2) is first
    with pytest.raises(ValueError, match=r"max_rows=9.*max_rows=8"):
        de.get_variable("shared_with_policies", dim=2, eviction=de.EvictionLRU(max_rows=8))


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


def test_a_table_in_another_process_is_refused(monkeypatch):
    users = de.Variable(dim=1, devices=["/job:localhost/replica:0/task:0/device:CPU:0"])
    assert len(users.take_evicted_keys(1)[0]) == 0  # TensorFlow's name of a device of this process
    monkeypatch.setattr(users._table, "_is_remote", True)
    with pytest.raises(NotImplementedError, match=r"Received: table=.* Ask `contains`"):
        users.take_evicted_keys(1)
