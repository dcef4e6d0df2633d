"""Converts rows to and from Apache Arrow, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received, require_eager
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library
from de_core.tables import keys_and_values
from de_core.tables.sharded import ShardedTable

# Rows that `from_arrow` converts and writes at a time.
_BATCH_ROWS = 65_536
_SOURCES = "a pyarrow RecordBatch, Table or RecordBatchReader, or an iterable of RecordBatches"


class ArrowRows:
    """Exports the rows of a table to Arrow, and imports them. A base class of `Variable`."""

    _table: ShardedTable

    @no_autograph
    def to_arrow(self) -> Any:
        """Returns a reader of all rows as Arrow record batches of a few thousand rows.

        The table is never copied as a whole. Other threads may write meanwhile: the reader returns
        a row exactly once if the row exists all the time. Eager mode only.

        Returns:
            A `pyarrow.RecordBatchReader`, which iterates over RecordBatches. Column `key` has the
            key dtype, or binary for string keys. Column `value` has fixed-size lists of `dim`
            elements of the value dtype: binary for strings, and float32 for bfloat16, which Arrow
            lacks. Optimizer slots are left out: use a checkpoint.

        Raises:
            ImportError: pyarrow is not installed.
            RuntimeError: Called in a graph, for example in a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> users.upsert([7], [[1.0, 2.0]])
        >>> users.to_arrow().read_all().to_pylist()
        [{'key': 7, 'value': [1.0, 2.0]}]
        """
        require_eager("to_arrow", "Call it outside of the function.")
        self._table.router.require_whole("`to_arrow`", "Use `export`, or a checkpoint.")
        pa = _pyarrow()
        key_type, value_type = self._arrow_types()
        columns = {"key": key_type, "value": pa.list_(value_type, self._table.spec.dim)}
        schema = pa.schema([pa.field(*column, nullable=False) for column in columns.items()])
        batches = (
            pa.RecordBatch.from_arrays(
                [_to_arrow(*each) for each in zip(arrays, schema.types, strict=True)], schema=schema
            )
            for arrays in self._table.export_batches()
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    @no_autograph
    def from_arrow(self, source: Any) -> int:
        """Inserts or overwrites rows from Arrow, at most 65,536 at a time. Eager mode only.

        The columns have the names and types of `to_arrow`. Lists of variable size are accepted too,
        if each has the right number of elements. Other columns are ignored. Values of a bfloat16
        table are float32, and are rounded to nearest even.

        Args:
            source: A pyarrow RecordBatch, Table or RecordBatchReader, or an iterable of
                RecordBatches, such as `pyarrow.parquet.ParquetFile(path).iter_batches()`.

        Returns:
            The number of rows read. A key that occurs twice is counted twice; its last row is
            stored.

        Raises:
            ImportError: pyarrow is not installed.
            TypeError: `source` is no Arrow data, or a column has another type than the table.
            ValueError: A column is missing, occurs twice, holds a null, or has lists of another
                size. Batches before the offending batch are stored.
            RuntimeError: Called in a graph, for example in a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users, copy = de.Variable(dim=2), de.Variable(dim=2)
        >>> users.upsert([7], [[1.0, 2.0]])
        >>> copy.from_arrow(users.to_arrow())
        1
        """
        require_eager("from_arrow", "Call it outside of the function.")
        self._table.router.require_whole("`from_arrow`", "Use `upsert`, or a checkpoint.")
        count, spec = 0, self._table.spec
        key_type, value_type = self._arrow_types()
        for whole in _record_batches(_pyarrow(), source):
            for start in range(0, len(whole), _BATCH_ROWS):
                batch = whole.slice(start, _BATCH_ROWS)
                keys = tf.constant(self._column(batch, "key", key_type, None), spec.key_dtype)
                values = self._column(batch, "value", value_type, spec.dim)
                rows = tf.reshape(tf.constant(values, spec.value_dtype), [-1, spec.dim])
                pair = keys_and_values.checked_pairs(keys, rows, self._table)
                self._table.write(library.de_table_insert_or_assign, pair)
                del keys, values, rows, pair  # before the next batch is made
                count += len(batch)
        return count

    def _column(self, batch: Any, name: str, element: Any, size: int | None) -> Any:
        """Returns the elements of a column as an array [n], or [n * size] if they are in lists."""
        pa = _pyarrow()
        if batch.schema.names.count(name) != 1:
            raise ValueError(
                f"The data must have one column {name!r}. Received: columns={batch.schema.names}."
            )
        column = batch.column(name)
        kind, about = column.type, f"of table {self._table.name!r}"
        lists = isinstance(kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType))
        held = kind.value_type if lists else kind
        if lists != (size is not None) or _like(pa, held) != element:
            wanted = f"{element}" if size is None else f"lists of {element}"
            raise TypeError(
                f"The column {name!r} must be {wanted}, for the rows {about}. Received: {kind}. "
                "Cast the column."
            )
        flat = column if size is None else column.flatten()
        if column.null_count or flat.null_count:
            raise ValueError(
                f"The column {name!r} must have no null, because a row {about} has none. "
                f"Received: {column.null_count + flat.null_count} nulls. Drop these rows."
            )
        sizes = pa.compute.list_value_length(column).unique().to_pylist() if lists else []
        if sizes not in ([], [size]):
            raise ValueError(
                f"The column {name!r} must have lists of {size} elements, for the rows {about}. "
                f"Received: {len(flat)} elements in {len(column)} lists."
            )
        if element == pa.binary():
            return np.array(flat.cast(element).to_pylist(), object)
        return flat.to_numpy(zero_copy_only=False)

    def _arrow_types(self) -> tuple[Any, Any]:
        """Returns the Arrow types of the keys and of the values' elements."""
        spec = self._table.spec
        return _arrow_type(spec.key_dtype), _arrow_type(spec.value_dtype)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ImportError(
            "Arrow data needs pyarrow. Received: no module 'pyarrow'. Run: pip install pyarrow"
        ) from error
    return pyarrow


def _arrow_type(dtype: tf.DType) -> Any:
    pa = _pyarrow()
    special = {tf.string: pa.binary(), tf.bfloat16: pa.float32(), tf.bool: pa.bool_()}
    return special.get(dtype) or pa.from_numpy_dtype(dtype.as_numpy_dtype)


def _like(pa: Any, kind: Any) -> Any:
    """Returns a type, or binary for every type of strings."""
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_large_binary, types.is_binary)
    return pa.binary() if any(test(kind) for test in tests) else kind


def _to_arrow(values: Any, kind: Any) -> Any:
    """Converts values [n], or [n, width] for a type of lists. Copies numbers only to cast."""
    pa, array = _pyarrow(), np.asarray(values)
    if array.ndim == 2:
        flat = _to_arrow(array.reshape(-1), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(flat, type=kind)
    if array.dtype == object:
        return pa.array(array.tolist(), kind)
    return pa.array(array.astype(kind.to_pandas_dtype(), copy=False), kind)


def _record_batches(pa: Any, source: Any) -> Iterator[Any]:
    if isinstance(source, pa.RecordBatch):
        source = [source]
    elif isinstance(source, pa.Table):
        source = source.to_batches()
    elif not isinstance(source, Iterable):
        raise TypeError(f"`source` must be {_SOURCES}. {received(source=source)}")
    for batch in source:
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(f"`source` must be {_SOURCES}. {received(source=batch)}")
        yield batch
