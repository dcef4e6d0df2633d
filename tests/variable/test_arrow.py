"""Tests `Variable.to_arrow` and `from_arrow`."""

from __future__ import annotations

import sys

import numpy as np
import pandas
import pyarrow as pa
import pytest
import tensorflow as tf
from pyarrow import parquet

import de_core as de

#: Values that a dtype must keep, and Arrow's type of the column's elements.
DTYPES = {
    "float32": ([1.5, -0.0, np.inf, 1e-45], pa.float32()),
    "float64": ([1.5, 1e300, -np.inf, 5e-324], pa.float64()),
    "float16": ([1.5, 65504, -np.inf, 6e-8], pa.float16()),
    "bfloat16": ([1.5, 3e38, -np.inf, 1e-40], pa.float32()),
    "int8": ([1, -128, 127, 0], pa.int8()),
    "int32": ([1, -(2**31), 2**31 - 1, 0], pa.int32()),
    "int64": ([1, -(2**63), 2**63 - 1, 2**53 + 1], pa.int64()),
    "bool": ([True, False, False, True], pa.bool_()),
    "string": ([b"", b"\xff\x00", "ö".encode(), b"x" * 100], pa.binary()),
}


def rows_of(table: de.Variable) -> dict[object, bytes]:
    keys, values = (each.numpy() for each in table.export())
    return {
        key: (value.tolist() if value.dtype == object else value.tobytes())
        for key, value in zip(keys.tolist(), values, strict=True)
    }


@pytest.mark.parametrize("key_dtype", ["int64", "int32", "string"])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_a_table_of_any_dtype_comes_back_as_it_was(dtype, key_dtype):
    values, element = DTYPES[dtype]
    keys = {
        "int64": [7, -(2**63), 2**63 - 1, 2**53 + 1],
        "int32": [7, -(2**31), 2**31 - 1, 0],
        "string": [b"", b"\xff\x00", "ö".encode(), b"7"],
    }[key_dtype]
    table = de.Variable(tf.as_dtype(key_dtype), tf.as_dtype(dtype), dim=2, name="t")
    rows = tf.stack([tf.constant(values, table.value_dtype)] * 2, 1)
    table.upsert(tf.constant(keys, table.key_dtype), rows)
    read = table.to_arrow().read_all()
    assert read.schema.field("value").type == pa.list_(pa.field("element", element), 2)
    other = de.Variable(table.key_dtype, table.value_dtype, dim=2, name="other")
    assert other.from_arrow(read) == 4
    assert rows_of(other) == rows_of(table)


@pytest.mark.parametrize(("dtype", "key_dtype"), [("float16", "string"), ("string", "int64")])
def test_rows_come_back_through_parquet(dtype, key_dtype, tmp_path):
    table = de.Variable(tf.as_dtype(key_dtype), tf.as_dtype(dtype), dim=2, name="t")
    keys = ["a", "b", "ö", "d"] if key_dtype == "string" else [1, -1, 2**62, 2**53 + 1]
    rows = tf.stack([tf.constant(DTYPES[dtype][0], table.value_dtype)] * 2, 1)
    table.upsert(tf.constant(keys, table.key_dtype), rows)
    path = tmp_path / "rows.parquet"
    with table.to_arrow() as reader, parquet.ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    for source in (parquet.read_table(path), parquet.ParquetFile(path).iter_batches(2)):
        other = de.Variable(table.key_dtype, table.value_dtype, dim=2, name="other")
        assert other.from_arrow(source) == 4
        assert rows_of(other) == rows_of(table)


def test_batches_are_small_and_cover_every_row_once():
    users = de.Variable(dim=1, name="users")
    users.upsert(range(50_000), tf.ones([50_000, 1]))
    batches = list(users.to_arrow())
    assert len(batches) > 5
    keys = np.concatenate([batch["key"].to_numpy() for batch in batches])
    np.testing.assert_array_equal(np.sort(keys), np.arange(50_000))


def test_reads_no_batch_before_it_needs_it():
    users = de.Variable(dim=1, name="users")
    seen = []

    def batches():
        for number in range(3):
            seen.append(int(users.size()))
            values = pa.FixedSizeListArray.from_arrays(pa.array([1.0], pa.float32()), 1)
            yield pa.RecordBatch.from_pydict({"key": pa.array([number]), "value": values})

    assert users.from_arrow(batches()) == 3
    assert seen == [0, 1, 2]


def test_an_empty_table_keeps_its_schema():
    empty = de.Variable(tf.string, dim=3, name="empty").to_arrow().read_all()
    assert len(empty) == 0
    assert empty.schema.field("key").type == pa.binary()
    assert empty.schema.field("value").type.list_size == 3


def test_slices_and_lists_of_pandas_are_taken():
    users = de.Variable(dim=2, name="users")
    frame = pandas.DataFrame(
        {"key": [1, 2, 3], "value": [np.float32([i, i + 1]) for i in range(3)]}
    )
    assert users.from_arrow(pa.Table.from_pandas(frame)[1:]) == 2
    assert users.lookup([1, 2, 3]).numpy().tolist() == [[0, 0], [1, 2], [2, 3]]
    read = users.to_arrow().read_pandas().set_index("key")["value"]
    assert read[3].tolist() == [2, 3]


KEY, LISTS = pa.array([1]), pa.list_(pa.float32())


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        (pa.array([1], pa.int32()), [[1, 2]], TypeError, "'key' must be int64.*Received: int32"),
        (
            KEY,
            pa.array([[1, 2]], pa.list_(pa.float64())),
            TypeError,
            "column 'value' must be lists of float.*Received: list<",
        ),
        (KEY, [[1]], ValueError, "lists of 2 elements"),
        (pa.array([1, 2]), [[1], [1, 2, 3]], ValueError, "lists of 2 elements"),
        (pa.array([None], pa.int64()), [[1, 2]], ValueError, "column 'key' must have no null"),
        (
            KEY,
            pa.array([None], pa.list_(pa.float32(), 2)),
            ValueError,
            "column 'value' must have no null",
        ),
        (KEY, [[1, None]], ValueError, "column 'value' must have no null"),
    ],
)
def test_bad_columns_are_refused_and_write_nothing(key, value, error, message):
    users = de.Variable(dim=2, name="users")
    value = pa.array(value, LISTS) if isinstance(value, list) else value
    with pytest.raises(error, match=message):
        users.from_arrow(pa.RecordBatch.from_pydict({"key": key, "value": value}))
    with pytest.raises(ValueError, match="column 'value'"):
        users.from_arrow(pa.RecordBatch.from_pydict({"key": KEY}))
    with pytest.raises(ValueError, match=r"must have one column 'key'. Received: columns="):
        users.from_arrow(pa.RecordBatch.from_arrays([KEY, KEY], ["key", "key"]))
    assert users.size() == 0


def test_something_else_than_arrow_is_refused():
    with pytest.raises(TypeError, match=r"`source` must be.*Received: source=7"):
        de.Variable(name="users").from_arrow(7)
    with pytest.raises(TypeError, match=r"`source` must be.*Received: source=.*dict"):
        de.Variable(name="users").from_arrow([{"key": 1}])


def test_without_pyarrow_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    users = de.Variable(name="users")
    for call in (users.to_arrow, lambda: users.from_arrow([])):
        with pytest.raises(ImportError, match=r"needs pyarrow.*pip install pyarrow"):
            call()
