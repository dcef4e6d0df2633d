"""The value of a table's Keras weight: an empty array that carries a snapshot of the rows.

Keras copies the state of a model through the arrays of `get_weights` and `set_weights`. A table's
weight is its empty anchor, [0, dim]. So the array refers to temporary files that hold the rows.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import weakref
from typing import Any

import numpy as np

from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable

_REMEDY = (
    "Pass the arrays of `get_weights` to `set_weights` unchanged; change rows with "
    "`Variable.upsert`; save models as .keras or .weights.h5 files or in checkpoints."
)


class Snapshot:
    """A table's rows in temporary files, which are deleted with this object.

    Attributes:
        paths: The file of each shard.
        source: Returns the table that the rows are from, or None if the table was deleted.
    """

    def __init__(self, shards: int, source: ShardedTable | None = None) -> None:
        folder = tempfile.mkdtemp(prefix="de_core_weights_")
        self.paths = [str(pathlib.Path(folder) / f"{index}.de") for index in range(shards)]
        self.source = (lambda: None) if source is None else weakref.ref(source)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def restore(self, table: ShardedTable) -> None:
        """Replaces the rows of `table` by the rows in this snapshot's files.

        Restores optimizer slots too if `table` is the table that the snapshot was made from.
        """
        table_files.restore(table, self.paths, slots=self.source() is table)


class WeightValue(np.ndarray[Any, Any]):
    """An array [0, dim] that carries a snapshot of a table's rows. Its views carry it too.

    Attributes:
        snapshot: The rows; None in an array that NumPy derived from another `WeightValue`.
    """

    snapshot: Snapshot | None = None

    @classmethod
    def of(cls, table: ShardedTable) -> WeightValue:
        """Returns the value of a table's weight, with the rows in files."""
        table.router.require_whole("The value of a weight", "Use tf.train.Checkpoint.")
        snapshot = Snapshot(len(table.tables), table)
        table_files.write(table, snapshot.paths)
        dtype = np.dtype(table.spec.value_dtype.as_numpy_dtype)
        return cls.carrying(snapshot, table.spec.dim, dtype)

    @classmethod
    def carrying(cls, snapshot: Snapshot, dim: int, dtype: np.dtype[Any]) -> WeightValue:
        """Returns an array that carries a snapshot."""
        # The array owns its memory, so `np.asarray`, which tf_keras calls, returns a view of it.
        value = np.ndarray.__new__(cls, (0, dim), dtype)
        value.snapshot = snapshot
        return value

    def copy(self, order: Any = "C") -> WeightValue:
        """Returns another array that carries the same snapshot."""
        del order
        snapshot = carried_by(self)
        if snapshot is None:
            return self
        return self.carrying(snapshot, self.shape[-1], self.dtype)

    def __copy__(self) -> WeightValue:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> WeightValue:
        return self.copy()

    def __reduce__(self) -> Any:
        snapshot = carried_by(self)
        if snapshot is None:
            return super().__reduce__()
        contents = [pathlib.Path(path).read_bytes() for path in snapshot.paths]
        return _unpickled, (contents, self.shape[-1], self.dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Raises TypeError: the array has no elements to compute with."""
        del method, inputs, options
        raise TypeError(
            "The value of a table's weight must not be used in a computation: it is empty, and "
            f"only carries a snapshot of the rows. {_REMEDY} Received: numpy.{ufunc.__name__}."
        )


def carried_by(value: Any) -> Snapshot | None:
    """Returns the snapshot that a value carries, or None."""
    for each in (value, getattr(value, "base", None)):
        if isinstance(each, WeightValue) and each.snapshot is not None:
            return each.snapshot
    return None


def without_rows(table_name: str, where: str) -> ValueError:
    """Returns the error for a value or a file that would lose a table's rows."""
    return ValueError(
        "The value of a table's weight must carry the table's rows, as the arrays of `get_weights` "
        "do. Arithmetic, tensors, np.save and older .h5 files lose the rows. "
        f"{_REMEDY} Received: {where} of the table {table_name!r}."
    )


def _unpickled(contents: list[bytes], dim: int, dtype: np.dtype[Any]) -> WeightValue:
    snapshot = Snapshot(len(contents))
    for path, content in zip(snapshot.paths, contents, strict=True):
        pathlib.Path(path).write_bytes(content)
    return WeightValue.carrying(snapshot, dim, dtype)
