"""Tests statistics of a Variable's shards, and methods that read, insert, reserve and shrink."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library

KEY_DTYPES = ["int64", "int32", "string"]
VALUE_DTYPES = [
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "int32", "int64", "bool", "string"),
]
PARTS = ("index", "rows", "slots", "strings", "policy", "free")

every_table = pytest.mark.parametrize(
    ("key_dtype", "shards"), list(itertools.product(KEY_DTYPES, [1, 3]))
)


def new(key_dtype="int64", shards=1, **arguments):
    devices = ["/CPU:0"] * shards
    return de.Variable(key_dtype=key_dtype, devices=devices, **{"dim": 2, **arguments})


def ids(key_dtype, start, stop):
    """Returns consecutive integers from `start`, as keys."""
    numbers = tf.range(start, stop, dtype=tf.int64)
    return tf.strings.as_string(numbers) if key_dtype == "string" else tf.cast(numbers, key_dtype)


def as_values(numbers, dtype):
    numbers = tf.constant(numbers)
    return tf.strings.as_string(numbers) if dtype == "string" else tf.cast(numbers, dtype)


def as_dict(keys, values):
    return dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True))


def merged(batches):
    """Merges all batches into one dict; fails if a key occurs twice."""
    rows = {}
    for keys, values in batches:
        assert len(keys) == len(values) > 0
        batch = as_dict(keys, values)
        assert len(batch) == len(keys)
        assert not rows.keys() & batch.keys()
        rows.update(batch)
    return rows


@pytest.mark.each_choice
@pytest.mark.parametrize("value_dtype", VALUE_DTYPES)
@pytest.mark.parametrize("key_dtype", KEY_DTYPES)
@pytest.mark.parametrize("shards", [1, 3])
def test_every_pair_of_dtypes_keeps_its_rows(key_dtype, value_dtype, shards):
    table = new(key_dtype, shards, value_dtype=value_dtype)
    keys = ids(key_dtype, -3, 4)
    rows = as_values(np.arange(14).reshape(7, 2), value_dtype)
    table.upsert(keys, rows)
    values, exists = table.lookup(keys, return_exists=True)
    assert values.dtype == tf.as_dtype(value_dtype)
    assert values.numpy().tolist() == rows.numpy().tolist()
    assert np.all(exists)
    assert as_dict(*table.export()) == as_dict(keys, rows)
    exported = merged(table.export_batches())
    assert exported == as_dict(keys, rows)


@pytest.mark.parametrize(
    ("argument", "key_dtype", "value_dtype", "supported"),
    [
        ("key_dtype", tf.float32, tf.float32, KEY_DTYPES),
        ("key_dtype", tf.uint64, tf.float32, KEY_DTYPES),
        ("value_dtype", tf.int64, tf.complex64, VALUE_DTYPES),
        ("value_dtype", tf.string, tf.uint8, VALUE_DTYPES),
    ],
)
def test_an_unsupported_dtype_is_a_type_error_that_names_the_others(
    argument, key_dtype, value_dtype, supported
):
    with pytest.raises(TypeError, match=f"`{argument}` must be one of") as caught:
        new(key_dtype, value_dtype=value_dtype)
    listed = str(caught.value).partition("one of ")[2].partition(". Received")[0].split(", ")
    assert sorted(listed) == sorted(supported)


def test_gradients_flow_through_find_or_insert():
    table = new(initializer=1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(3.0 * table.find_or_insert([4, 5]))
    (gradient,) = tape.gradient(loss, table.trainable_variables)
    np.testing.assert_array_equal(gradient.indices, [4, 5])
    np.testing.assert_array_equal(gradient.values, np.full([2, 2], 3.0))


def test_export_batches_goes_on_while_rows_come_and_go():
    table = new(shards=3)
    table.upsert(ids("int64", 0, 30_000), tf.repeat(tf.range(30_000.0)[:, None], 2, 1))
    seen = []
    for step, (keys, rows) in enumerate(table.export_batches()):
        keys, rows = keys.numpy(), rows.numpy()
        np.testing.assert_array_equal(rows[keys < 30_000, 1], keys[keys < 30_000])
        seen += keys.tolist()
        fresh = 100_000 + 2000 * step
        table.upsert(ids("int64", fresh, fresh + 2000), tf.ones([2000, 2]))
        table.remove(ids("int64", fresh, fresh + 1000))
    assert len(seen) == len(set(seen))
    assert set(range(30_000)) <= set(seen)


def test_export_batches_of_an_empty_table_is_empty():
    assert list(new(shards=3).export_batches()) == []


@pytest.mark.parametrize("value_dtype", [tf.bool, tf.string])
def test_accum_takes_numbers_only(value_dtype):
    table = new(value_dtype=value_dtype, dim=1)
    rows = tf.zeros([1, 1], value_dtype)
    with pytest.raises(TypeError, match=r"must be numbers for `accum`.*Received: value_dtype="):
        table.accum([1], rows, rows)


@every_table
def test_memory_usage_adds_up_and_grows_with_the_rows(key_dtype, shards):
    table = new(key_dtype, shards, dim=16)
    empty = table.memory_usage()
    table.upsert(ids(key_dtype, 0, 20_000), tf.ones([20_000, 16]))
    full = table.memory_usage()
    assert list(full) == [*PARTS, "total"]
    assert full["total"] == sum(full[part] for part in PARTS)
    assert full["rows"] >= 20_000 * 16 * 4
    assert full["index"] >= max(20_000 * 12, empty["index"])
    assert (full["strings"] > 0) == (key_dtype == "string")
    assert full["slots"] == 0


@every_table
def test_the_index_of_reserved_rows_does_not_grow(key_dtype, shards):
    table = new(key_dtype, shards)
    table.reserve(24_000)  # more than needed, because shards do not get equal numbers of keys
    reserved = table.memory_usage()["index"]
    table.upsert(ids(key_dtype, 0, 20_000), tf.ones([20_000, 2]))
    assert table.memory_usage()["index"] == reserved >= 20_000 * 12
    assert int(table.size()) == 20_000


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        *((rows, TypeError, r"an integer\. ") for rows in (1.5, "9", True, None)),
        *((rows, ValueError, "at least 0 .*") for rows in (-1, 2**63)),
    ],
)
def test_reserve_takes_a_whole_number_that_is_neither_negative_nor_huge(rows, error, message):
    with pytest.raises(error, match=f"`rows` must be {message}Received: rows="):
        new().reserve(rows)


@every_table
def test_shrink_to_fit_gives_memory_back_and_keeps_the_rows(key_dtype, shards):
    table = new(key_dtype, shards, dim=16)
    rows = tf.reshape(tf.range(16.0 * 50_000), [50_000, 16])
    table.upsert(ids(key_dtype, 0, 50_000), rows)
    table.remove(ids(key_dtype, 100, 50_000))
    before = table.memory_usage()["total"]
    table.shrink_to_fit()
    assert table.memory_usage()["total"] < before / 2
    assert as_dict(*table.export()) == as_dict(ids(key_dtype, 0, 100), rows[:100])


@every_table
def test_stats_count_rows_hits_misses_and_probes(key_dtype, shards):
    table = new(key_dtype, shards)
    assert table.stats()["rows"] == table.stats()["load_factor"] == 0
    table.upsert(ids(key_dtype, 0, 5000), tf.ones([5000, 2]))
    table.lookup(ids(key_dtype, 4000, 7000))
    stats = table.stats()
    assert (stats["rows"], stats["hits"], stats["misses"]) == (5000, 1000, 2000)
    assert sum(stats["probe_lengths"]) == 5000
    assert stats["probe_lengths"][0] > 4000
    parts = [each.stats()["load_factor"] for each in table.tables]
    assert 0 < min(parts) <= stats["load_factor"] <= max(parts) <= 1
    assert stats["memory"] == table.memory_usage()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        *((name, []) for name in ("export_batches", "memory_usage", "stats", "to_arrow")),
        ("from_arrow", [[]]),
    ],
)
def test_verbs_with_python_results_are_refused_in_a_graph(method, arguments):
    table = new()

    @tf.function
    def step():
        getattr(table, method)(*arguments)

    with pytest.raises(RuntimeError, match=f"`{method}` must be called in eager mode.*Received"):
        step()


def test_a_process_tells_which_live_tables_it_has():
    def rows():
        tables = json.loads(library.de_process_tables().numpy())
        return {each["table"]: each["stats"]["rows"] for each in tables}

    table = de.Variable(dim=2, name="told", devices=["/CPU:0"] * 2)
    table.upsert(range(10), tf.ones([10, 2]))
    found = rows()
    sizes = [int(table.size(index)) for index in range(2)]
    assert [found["told_mht_1of2"], found["told_mht_2of2"]] == sizes
    del table
    assert "told_mht_1of2" not in rows()
