"""Tables as they lie in files of `tfra.dynamic_embedding`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from de_core.base.checks import received

_BATCH_BYTES = 16 << 20


class Spec(NamedTuple):
    """The dtypes of a table, and the number of values per row."""

    key_dtype: tf.DType
    value_dtype: tf.DType
    dim: int

    def __str__(self) -> str:
        return f"{self.key_dtype.name} -> {self.value_dtype.name}[{self.dim}]"


class Shard(Protocol):
    """The rows of one shard."""

    def spec(self) -> Spec | None:
        """Returns the dtypes and the dim. None if the file does not contain them."""

    def rows(self, spec: Spec) -> int:
        """Returns the number of rows.

        Raises:
            ValueError: The shard's keys and values do not fit together, or do not fit `spec`.
        """

    def batches(self, spec: Spec, rows: int) -> Iterator[tuple[Any, Any]]:
        """Yields keys [n] and values [n, dim], with at most `rows` rows in a batch.

        Raises:
            tf.errors.OpError: A file is missing or damaged.
        """


class SavedTable(NamedTuple):
    """A table and its files.

    Attributes:
        name: The table's name. In files that flatten names it has "_" for "/".
        path: The place of the table in the object graph of a checkpoint, or "".
        shards: The shards.
    """

    name: str
    path: str
    shards: tuple[Shard, ...]

    def spec(self) -> Spec | None:
        """Returns the dtypes and the dim; None if the files do not contain them.

        Raises:
            ValueError: The shards differ.
        """
        specs = list(dict.fromkeys(shard.spec() for shard in self.shards))
        if len(specs) > 1:
            raise ValueError(
                f"All shards of table {self.name!r} must have equal dtypes and dims. Received: "
                f"{', '.join(map(str, specs))}. Read the table from a checkpoint that is whole."
            )
        return specs[0]

    def rows(self, spec: Spec) -> int:
        """Returns the number of rows of all shards."""
        return sum(shard.rows(spec) for shard in self.shards)

    def batches(self, spec: Spec) -> Iterator[tuple[Any, Any]]:
        """Yields keys [n] and values [n, dim] in batches of a few MiB."""
        row_bytes = 16 + spec.dim * max(spec.value_dtype.size, 1)
        for shard in self.shards:
            yield from shard.batches(spec, max(1, _BATCH_BYTES // row_bytes))

    def verify(self, spec: Spec) -> int:
        """Reads all rows once, so that damage is found before a table changes.

        Returns:
            The number of rows.

        Raises:
            tf.errors.DataLossError: A file is damaged or shorter than it should be.
        """
        rows, read = self.rows(spec), 0
        for keys, values in self.batches(spec):
            if len(keys) != len(values):
                break
            read += len(keys)
        if read != rows:
            raise tf.errors.DataLossError(
                None,
                None,
                f"The files of table {self.name!r} must not change while they are read. "
                f"{received(rows=rows, read=read)} Import them once they are complete.",
            )
        return rows


def flat(name: str) -> str:
    """Returns a table's name as it stands in file names: "_" for "/"."""
    return name.replace("/", "_")
