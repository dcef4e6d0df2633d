"""Redis that lost rows, evicts rows, or has no memory left. No lost row reads as a new row."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.storage import servers
from tests.storage.servers import creator_for

IDS = tf.range(10, dtype=tf.int64)
LOST = "must keep the rows of table 'users'. Received: 1 of 1 slices without the mark"
EVICTS = "must not evict rows of table 'users'.*Received: maxmemory-policy='allkeys-lru'"
QUICK = {"redis_connect_timeout": 1000, "redis_retries": 1}


@pytest.fixture
def redis(start):
    """A server that a test may restart. It keeps nothing on disk."""
    return start()


def table_in(redis, tag="losses", **options):
    creator = creator_for([redis], **{**QUICK, "model_tag_runtime": tag, **options})
    return de.Variable(dim=2, name="users", kv_creator=creator)


def step_of(table):
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    return lambda: optimizer.apply([tf.IndexedSlices(-tf.ones([10, 2]), IDS)], [table])


def restart(redis):
    redis.stop()
    redis.start()


def test_a_redis_that_restarts_empty_is_a_loss_until_a_checkpoint_is_restored(redis, tmp_path):
    table = table_in(redis)
    reader = table_in(redis)
    step = step_of(table)
    step()
    assert reader.lookup([5])[0, 0] == 1.0
    de.checkpoint.save(table, tmp_path / "saved")
    restart(redis)
    for use in (
        step,
        lambda: table.lookup(IDS),
        lambda: table.upsert([1], [[9.0, 9.0]]),
        table.size,
        table.export,
        lambda: de.checkpoint.save(table, tmp_path / "nothing"),
    ):
        with pytest.raises(tf.errors.DataLossError, match=LOST):
            use()
    with pytest.raises(Exception, match=LOST):
        tf.function(table.lookup)(IDS)
    de.checkpoint.restore(table, tmp_path / "saved")
    step()
    np.testing.assert_array_equal(table.lookup(IDS), np.full([10, 2], 2.0))
    # Another process has seen neither the loss nor the restored rows.
    with pytest.raises(tf.errors.DataLossError, match=LOST):
        reader.lookup(IDS)
    np.testing.assert_array_equal(table_in(redis).lookup(IDS), np.full([10, 2], 2.0))


def test_a_redis_that_keeps_its_rows_may_restart(redis):
    table = table_in(redis)
    step = step_of(table)
    step()
    redis.command("save")
    restart(redis)
    step()
    np.testing.assert_array_equal(table.lookup(IDS), np.full([10, 2], 2.0))


def test_flushed_rows_are_a_loss_without_a_new_connection(redis):
    table = table_in(redis)
    step_of(table)()
    redis.command("flushall")
    store = table.tables[0].rows.store

    def read_together():
        store.read_together([store.VALUE, "slot"], [b"key"])

    for use in (lambda: table.lookup(IDS), table.size, table.export, read_together):
        with pytest.raises(tf.errors.DataLossError, match=LOST):
            use()
    table.clear()
    assert int(table.size()) == 0
    assert table_in(redis).lookup([1])[0, 0] == 0.0


def test_a_table_may_be_allowed_to_continue_without_its_rows(redis):
    table = table_in(redis, allow_empty=True)
    step = step_of(table)
    step()
    restart(redis)
    step()
    np.testing.assert_array_equal(table.lookup(IDS), np.full([10, 2], 1.0))


def test_a_lost_slice_is_found_when_a_table_is_made(redis):
    options = {"storage_slice": 4}
    table = table_in(redis, **options)
    table.upsert(range(100), tf.ones([100, 2]))
    names = redis.command("keys", "*").split()
    [description] = [name for name in names if name.endswith(":description")]
    slices = sorted({name.partition("}")[0] for name in names if name.endswith(":mark")})
    assert len(slices) == 4
    for lost in (slices[0], slices[-1], description.partition("}")[0]):
        redis.command("del", *(name for name in names if name.startswith(lost + "}")))
        with pytest.raises(tf.errors.DataLossError, match="of 4 slices without the mark"):
            table_in(redis, **options)
        table_in(redis, allow_empty=True, **options)
        table_in(redis, **options)


def test_other_slices_are_refused_and_lose_no_row(redis):
    tags = "redis_hash_tags_runtime"
    for number, (first, others) in enumerate((
        ({}, [{"storage_slice": 4}, {"storage_slice": 4, "allow_empty": True}]),
        ({"storage_slice": 2}, [{}, {"storage_slice": 3}, {tags: ["a", "b"]}]),
        ({tags: ["a", "b"]}, [{tags: ["b", "a"]}, {tags: ["c", "d", "e"]}, {"storage_slice": 2}]),
    )):  # fmt: skip
        table_in(redis, f"slices{number}", **first).upsert(range(10), tf.ones([10, 2]))
        for other in others:
            with pytest.raises(ValueError, match=r"must stay.* was created, .*Received: \["):
                table_in(redis, f"slices{number}", **other)
        np.testing.assert_array_equal(
            table_in(redis, f"slices{number}", **first).lookup(IDS), tf.ones([10, 2])
        )


def test_a_redis_that_evicts_rows_is_refused(redis):
    redis.command("config", "set", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(tf.errors.FailedPreconditionError, match=EVICTS):
        table_in(redis)
    redis.command("config", "set", "maxmemory-policy", "noeviction")
    table = table_in(redis)
    table.upsert([1], [[1.0, 1.0]])
    redis.command("config", "set", "maxmemory-policy", "allkeys-lru")
    assert table.lookup([1, 2]).numpy().tolist() == [[1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(tf.errors.FailedPreconditionError, match=EVICTS):
        table.lookup([2])  # this reply shows no row


def test_a_full_redis_is_an_error_that_says_so(redis):
    table = table_in(redis)
    table.upsert(range(10), tf.ones([10, 2]))
    redis.command("config", "set", "maxmemory", "1mb")
    full = r"must have memory for the rows.*Received: 10 of 10 keys could not be {}, of table"
    with pytest.raises(tf.errors.UnavailableError, match=full.format("written")):
        table.upsert(range(10), tf.zeros([10, 2]))
    with pytest.raises(tf.errors.UnavailableError, match=full.format("changed")):
        step_of(table)()
    np.testing.assert_array_equal(table.lookup(IDS), np.ones([10, 2]))
    redis.command("config", "set", "maxmemory", "0")
    step_of(table)()
    np.testing.assert_array_equal(table.lookup(IDS), np.full([10, 2], 2.0))


def test_a_cluster_node_that_restarts_empty_is_a_loss_of_its_slices(start):
    nodes = servers.cluster(start)
    table = de.Variable(dim=2, name="users", kv_creator=creator_for(nodes, **QUICK))
    table.upsert(range(300), tf.ones([300, 2]))
    nodes[0].command("flushall")
    lost = r"Received: 1\d of 1\d slices without the mark"
    with pytest.raises(tf.errors.DataLossError, match=lost):
        table.lookup(range(300))
    with pytest.raises(tf.errors.DataLossError, match=lost):
        table.size()
    for evicting in (nodes, nodes[1:2]):
        for node in evicting:
            node.command("config", "set", "maxmemory-policy", "allkeys-lfu")
        with pytest.raises(tf.errors.FailedPreconditionError, match="allkeys-lfu"):
            de.Variable(dim=2, name="users", kv_creator=creator_for(nodes, **QUICK))
        for node in evicting:
            node.command("config", "set", "maxmemory-policy", "noeviction")
    table.clear()
    table.upsert(range(300), tf.ones([300, 2]))
    assert int(table.size()) == 300
