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
from de_core.tables.policy import is_reserved
from de_core.tables.sharded import ShardedTable

# Rows that `from_arrow` converts and writes at a time.
_BATCH_ROWS = 65_536
_SOURCES = "a pyarrow RecordBatch, Table or RecordBatchReader, or an iterable of RecordBatches"


class ArrowRows:
    """Exports the rows of a table to Arrow, and imports them. A base class of `Variable`."""

    _table: ShardedTable

    @no_autograph
    def to_arrow(self, slots: bool = False) -> Any:
        """Returns a reader of all rows as Arrow record batches of a few thousand rows.

        The table is never copied as a whole. Other threads may write meanwhile: the reader returns
        a row exactly once if the row exists all the time. Eager mode only.

        Args:
            slots: True for optimizer slots too. They are read just after the values.

        Returns:
            A `pyarrow.RecordBatchReader`, which iterates over RecordBatches. Column `key` has the
            key dtype, or binary for string keys. Column `value` has fixed-size lists of `dim`
            elements of the value dtype: binary for strings, and float32 for bfloat16, which Arrow
            lacks. Each slot is a column "owner/name" of fixed-size lists of float32, or of float64
            in a table of float64.

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
        widths = self._slot_widths() if slots else {}
        slot_type = pa.float64() if self._table.spec.value_dtype == tf.float64 else pa.float32()
        key_type, value_type = self._arrow_types()
        columns = {"key": key_type, "value": pa.list_(value_type, self._table.spec.dim)}
        columns.update((name, pa.list_(slot_type, width)) for name, width in widths.items())
        schema = pa.schema([pa.field(*column, nullable=False) for column in columns.items()])
        return pa.RecordBatchReader.from_batches(schema, self._arrow_batches(schema, widths))

    @no_autograph
    def from_arrow(self, source: Any, slots: bool = False) -> int:
        """Inserts or overwrites rows from Arrow, at most 65,536 at a time. Eager mode only.

        The columns have the names and types of `to_arrow`. Lists of variable size are accepted too,
        if each has the right number of elements. Other columns are ignored. Values of a bfloat16
        table are float32, and are rounded to nearest even.

        Args:
            source: A pyarrow RecordBatch, Table or RecordBatchReader, or an iterable of
                RecordBatches, such as `pyarrow.parquet.ParquetFile(path).iter_batches()`.
            slots: True to write all columns of optimizer slots too. The table must have the slots:
                build the optimizer, or do its first step, before.

        Returns:
            The number of rows read. A key that occurs twice is counted twice; its last row is
            stored.

        Raises:
            ImportError: pyarrow is not installed.
            TypeError: `source` is no Arrow data, or a column has another type than the table.
            ValueError: A column is missing, holds a null, or has lists of another size; or the
                table lacks a slot. Batches before the offending batch are stored.
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
        count = 0
        for whole in _record_batches(_pyarrow(), source):
            for start in range(0, len(whole), _BATCH_ROWS):
                batch = whole.slice(start, _BATCH_ROWS)
                self._write_batch(batch, slots)
                count += len(batch)
        return count

    def _arrow_batches(self, schema: Any, widths: dict[str, int]) -> Iterator[Any]:
        pa = _pyarrow()
        for table in self._table.tables:
            for keys, values in table.export_batches():
                arrays = {"key": keys.numpy(), "value": values.numpy()}
                for name, width in widths.items():
                    found = self._table.find_slot(keys, tf.constant(name), width)
                    arrays[name] = found.numpy()
                columns = [_to_arrow(arrays[field.name], field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _write_batch(self, batch: Any, slots: bool) -> None:
        """Checks all columns of a batch, then writes them."""
        spec = self._table.spec
        key_type, value_type = self._arrow_types()
        keys = tf.constant(self._column(batch, "key", key_type, None), spec.key_dtype)
        values = self._column(batch, "value", value_type, spec.dim)
        rows = tf.reshape(tf.constant(values, spec.value_dtype), [-1, spec.dim])
        pa = _pyarrow()
        slot_type = pa.float64() if spec.value_dtype == tf.float64 else pa.float32()
        widths = self._slot_widths() if slots else {}
        found = {}
        for name in batch.schema.names if slots else ():
            if name in widths:
                flat = self._column(batch, name, slot_type, widths[name])
                found[name] = tf.reshape(tf.constant(flat), [-1, widths[name]])
            elif "/" in name:
                raise ValueError(
                    f"Table {self._table.name!r} must have the slots of the data. "
                    f"Received: {name}. Build the optimizer or do its first step before, or pass "
                    "slots=False."
                )
        pair = keys_and_values.checked_pairs(keys, rows, self._table)
        self._table.write(library.de_table_insert_or_assign, pair)
        for name, each in found.items():
            self._table.assign_slot(pair[0], each, tf.constant(name))

    def _column(self, batch: Any, name: str, element: Any, size: int | None) -> Any:
        """Returns the elements of a column as an array [n], or [n * size] if they are in lists."""
        pa = _pyarrow()
        if name not in batch.schema.names:
            raise ValueError(
                f"The data must have a column {name!r}. Received: columns={batch.schema.names}."
            )
        column = batch.column(name)
        kind, about = column.type, f"of table {self._table.name!r}"
        lists = (
            pa.types.is_list(kind)
            or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)
        )
        held = kind.value_type if lists and size is not None else kind
        if (lists != (size is not None)) or _like(pa, held) != element:
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
        if not lists:
            is_even = True
        elif pa.types.is_fixed_size_list(kind):
            is_even = kind.list_size == size
        else:
            is_even = bool((np.diff(column.offsets.to_numpy()) == size).all())
        if not is_even:
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

    def _slot_widths(self) -> dict[str, int]:
        """Returns the width of each optimizer slot, by "owner/name"."""
        found = self._table.slots().items()
        return {name: width for name, width in found if not is_reserved(name)}


def _pyarrow() -> Any:
    try:
        import pyarrow
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


def _to_arrow(array: np.ndarray[Any, Any], kind: Any) -> Any:
    """Converts an array [n], or [n, width] for a type of lists. Copies numbers only to cast."""
    pa = _pyarrow()
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
