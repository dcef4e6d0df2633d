"""The contents of files of `tfra.dynamic_embedding`: tables with their slots and policies.

A reader per layout lists the tables. `roles` finds which of them belong to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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


class Shard(NamedTuple):
    """The rows of one shard.

    Attributes:
        source: The name of the file or tensor with the keys.
        spec: The dtypes and the dim; None for a file, which does not contain them.
        sizes: The bytes of all keys and of all values. Strings count as one byte.
        read: Yields keys [n] and values [n, dim] as a spec says, with at most `n` rows in a batch.
            Raises tf.errors.OpError for a missing or damaged file.
    """

    source: str
    spec: Spec | None
    sizes: tuple[int, int]
    read: Callable[[Spec, int], Iterator[tuple[Any, Any]]]

    def rows(self, spec: Spec) -> int:
        """Returns the number of rows.

        Raises:
            ValueError: The sizes of keys and values do not fit `spec`, or files are of strings.
        """
        if self.spec is None and tf.string in (spec.key_dtype, spec.value_dtype):
            raise ValueError(
                "Keys and values of key-value files must be numbers. "
                f"{received(spec=str(spec), file=self.source)} tfra writes the memory addresses of "
                "strings into these files, not the strings. Import a tf.train.Checkpoint that was "
                "saved without a FileSystemSaver."
            )
        key_bytes, value_bytes = (max(each.size, 1) for each in spec[:2])
        rows = self.sizes[0] // key_bytes
        wanted = (rows * key_bytes, rows * spec.dim * value_bytes)
        if self.sizes != wanted:
            raise ValueError(
                f"{self.source!r} must have a row for each key: {wanted[1]} bytes of values for "
                f"{wanted[0]} bytes of keys. Received: {self.sizes[1]} bytes of values for "
                f"{self.sizes[0]} bytes of keys, with spec={spec}. Pass the dtypes and the dim of "
                "the saved table, or copy the files again."
            )
        return rows


class SavedTable(NamedTuple):
    """A table with what belongs to it.

    Attributes:
        name: The table's name. In files that flatten names it has "_" for "/".
        path: The place of the table in the object graph of a checkpoint, or "".
        shards: The shards.
        scope: The last part of the name, where a Saver's files tell it, or "".
        slots: The optimizer's slots by name. Each is a table with the keys of this table.
        columns: The counts and times of restrict policies, by "uses" and "time".
        optimizer: The path of the slots' optimizer in the checkpoint, or "" if it is unknown.
        doubts: Why this table may also belong to another table, or "".
    """

    name: str
    path: str
    shards: tuple[Shard, ...]
    scope: str
    slots: dict[str, SavedTable]
    columns: dict[str, SavedTable]
    optimizer: str = ""
    doubts: str = ""

    def spec(self) -> Spec | None:
        """Returns the dtypes and the dim; None if the files do not contain them.

        Raises:
            ValueError: The shards differ.
        """
        specs = list(dict.fromkeys(shard.spec for shard in self.shards))
        if len(specs) > 1:
            raise ValueError(
                f"All shards of table {self.name!r} must have equal dtypes and dims. Received: "
                f"{', '.join(map(str, specs))}. Read the table from a checkpoint that is whole."
            )
        return specs[0]

    def sizes(self) -> tuple[int, int]:
        """Returns the bytes of all keys and of all values. Strings count as one byte."""
        keys, values = zip(*(shard.sizes for shard in self.shards), strict=True)
        return sum(keys), sum(values)

    def is_like(self, other: SavedTable) -> bool:
        """Returns whether the shards and the rows have the shape of another table's."""
        (keys, values), (other_keys, other_values) = self.sizes(), other.sizes()
        return (
            len(self.shards) == len(other.shards)
            and self.spec() == other.spec()
            and keys * other_values == other_keys * values
        )

    def may_count(self) -> bool:
        """Returns whether each row may be one int32, as the counts and times of a policy are."""
        spec, (keys, values) = self.spec(), self.sizes()
        if spec is None:
            return keys in (values, 2 * values)
        return (spec.value_dtype, spec.dim) == (tf.int32, 1)

    def rows(self, spec: Spec) -> int:
        """Returns the number of rows of all shards."""
        return sum(shard.rows(spec) for shard in self.shards)

    def batches(self, spec: Spec) -> Iterator[tuple[Any, Any]]:
        """Yields keys [n] and values [n, dim] in batches of a few MiB."""
        row_bytes = 16 + spec.dim * max(spec.value_dtype.size, 1)
        for shard in self.shards:
            yield from shard.read(spec, max(1, _BATCH_BYTES // row_bytes))

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


def all_shards(
    name: str, found: Mapping[str, dict[str, str]], wanted: list[str], parts: set[str], where: str
) -> list[dict[str, str]]:
    """Returns the keys or files of a table's shards, in the order of their numbers.

    `found` has the parts of each shard that there are, and `parts` those that each must have.

    Raises:
        ValueError: Something is missing.
    """
    missing = [
        f"{part} of shard {number}"
        for number in wanted
        for part in sorted(parts - set(found.get(number, ())))
    ]
    if missing:
        raise ValueError(
            f"All {len(wanted)} shards of table {name!r} must exist. Received: no "
            f"{'; no '.join(missing)} in {where!r}. Copy all files of the save."
        )
    return [found[number] for number in wanted]


def escaped(name: str) -> str:
    """Returns the name of an object as it stands in the keys of a checkpoint's tensors."""
    return name.replace(".", "..").replace("/", ".S")


def flat(name: str) -> str:
    """Returns a table's name as it stands in file names: "_" for "/"."""
    return name.replace("/", "_")
