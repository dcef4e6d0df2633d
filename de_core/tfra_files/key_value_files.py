"""Tables in the files of `save_to_file_system` and `FileSystemSaver`.

The files of a shard are `<name>_mht_<i>of<n>[_rank<r>_size<s>]-keys` and `-values`. They hold
numbers without a header or a checksum. "/" in a name has become "_".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import received
from de_core.tfra_files.contents import SavedTable, Spec

_NAME = re.compile(
    r"(?P<table>.+)_mht_(?P<index>\d+)of(?P<count>\d+)"
    r"(?:_rank(?P<rank>\d+)_size(?P<size>\d+))?-(?P<part>keys|values)"
)
_FIRST_BYTES = 1 << 20
_ADDRESSES = (
    "tfra writes the memory addresses of strings into these files, not the strings. Import a "
    "tf.train.Checkpoint that was saved without a FileSystemSaver."
)


class FileShard:
    """A shard in two files.

    Args:
        keys: The path of the file with the keys.
        values: The path of the file with the values.
    """

    def __init__(self, keys: str, values: str) -> None:
        self._keys = keys
        self._values = values

    def spec(self) -> None:
        """Returns None: the files do not contain their dtypes and dim."""

    def sizes(self) -> tuple[int, int]:
        """Returns the bytes of all keys and of all values."""
        keys, values = (int(tf.io.gfile.stat(each).length) for each in (self._keys, self._values))
        return keys, values

    def rows(self, spec: Spec) -> int:
        """Returns the number of rows.

        Raises:
            ValueError: Keys or values are strings, or the sizes do not fit.
        """
        if tf.string in (spec.key_dtype, spec.value_dtype):
            raise ValueError(
                "Keys and values of key-value files must be numbers. "
                f"{received(spec=str(spec), file=self._keys)} {_ADDRESSES}"
            )
        sizes = self.sizes()
        rows = sizes[0] // spec.key_dtype.size
        wanted = (rows * spec.key_dtype.size, rows * _row_bytes(spec))
        if sizes != wanted:
            raise ValueError(
                f"{self._values!r} must have a row for each key: {wanted[1]} bytes of values for "
                f"{wanted[0]} bytes of keys. Received: {sizes[1]} bytes of values for {sizes[0]} "
                f"bytes of keys, with spec={spec}. Pass the dtypes and the dim of the saved table, "
                "or copy the files again."
            )
        return rows

    def halves(self) -> Any:
        """Returns the first MiB of the keys as int32 [n]."""
        with tf.io.gfile.GFile(self._keys, "rb") as keys:
            some = keys.read(_FIRST_BYTES)
        return np.frombuffer(some[: len(some) // 4 * 4], np.int32)

    def batches(self, spec: Spec, rows: int) -> Iterator[tuple[Any, Any]]:
        """Yields keys [n] and values [n, dim]."""
        with (
            tf.io.gfile.GFile(self._keys, "rb") as keys,
            tf.io.gfile.GFile(self._values, "rb") as values,
        ):
            while True:
                some = keys.read(rows * spec.key_dtype.size)
                if not some:
                    return
                there = np.frombuffer(some, spec.key_dtype.as_numpy_dtype)
                flat = values.read(len(there) * _row_bytes(spec))
                numbers = np.frombuffer(flat, spec.value_dtype.as_numpy_dtype)
                yield there, numbers.reshape([-1, spec.dim])


def check_keys(table: SavedTable, spec: Spec, is_given: bool) -> None:
    """Checks that the keys of a table in files are int64, or int32, and cannot be the other.

    n keys of int64 with rows of `dim` numbers have the sizes of 2 n keys of int32 with half rows.
    They cannot be int32 if a half of a key repeats: the keys of a shard are distinct.

    Args:
        table: The table.
        spec: How its files are read.
        is_given: True if the caller named the dtype of the keys.

    Raises:
        ValueError: The keys repeat, or may be of the other dtype.
    """
    shards = [each.halves() for each in table.shards if isinstance(each, FileShard)]
    shards = [halves for halves in shards if len(halves)]
    repeat = any(len(np.unique(halves)) < len(halves) for halves in shards)
    if spec.key_dtype == tf.int32:
        other = Spec(tf.int64, spec.value_dtype, 2 * spec.dim)
        may_be_other = all(len(halves) % 2 == 0 for halves in shards)
    else:
        other = Spec(tf.int32, spec.value_dtype, spec.dim // 2)
        may_be_other = spec.dim % 2 == 0 and not repeat
    if repeat and spec.key_dtype == tf.int32:
        raise ValueError(
            f"The keys of a shard of table {table.name!r} must be distinct. Received: keys that "
            f"repeat, with spec={spec}. Pass the dtypes and the dim of the saved table."
        )
    if shards and may_be_other and not is_given:
        raise ValueError(
            f"The sizes of the files of table {table.name!r} must tell the dtype of its keys. "
            f"Received: files that hold {spec} or {other}. Pass `key_dtype` to name the dtype "
            "that was saved."
        )


def _row_bytes(spec: Spec) -> int:
    return spec.dim * spec.value_dtype.size


class _Layout(NamedTuple):
    """Which processes wrote a table, and how many shards each had."""

    shards: int
    size: int | None

    def __str__(self) -> str:
        processes = "" if self.size is None else f" of {self.size} processes"
        return f"{self.shards} shards{processes}"


def tables_in(folder: str) -> dict[str, SavedTable]:
    """Finds the tables of a folder by name.

    Raises:
        ValueError: A shard, keys or values are missing, or a table was saved several times with
            different numbers of shards.
        tf.errors.NotFoundError: The folder does not exist.
    """
    found: dict[str, dict[_Layout, dict[tuple[int, int], dict[str, str]]]] = {}
    for name in tf.io.gfile.listdir(folder):
        match = _NAME.fullmatch(name.rstrip("/"))
        if match is None:
            continue
        layout = _Layout(int(match["count"]), int(match["size"]) if match["size"] else None)
        place = (int(match["rank"] or 0), int(match["index"]))
        shards = found.setdefault(match["table"], {}).setdefault(layout, {})
        shards.setdefault(place, {})[match["part"]] = paths.join(folder, name)
    return {name: _table(name, layouts, folder) for name, layouts in sorted(found.items())}


def _table(
    name: str, layouts: dict[_Layout, dict[tuple[int, int], dict[str, str]]], folder: str
) -> SavedTable:
    if len(layouts) > 1:
        raise ValueError(
            f"A folder must hold one save of table {name!r}. Received: saves with "
            f"{' and with '.join(map(str, layouts))} in {folder!r}. Move the older files away."
        )
    ((layout, shards),) = layouts.items()
    wanted = [
        (rank, index) for rank in range(layout.size or 1) for index in range(1, layout.shards + 1)
    ]
    missing = [
        f"{part} of shard {index}" + ("" if layout.size is None else f", process {rank}")
        for rank, index in wanted
        for part in ("keys", "values")
        if part not in shards.get((rank, index), {})
    ]
    if missing:
        raise ValueError(
            f"All {layout} of table {name!r} must exist. Received: no {'; no '.join(missing)} in "
            f"{folder!r}. Copy all files of the save."
        )
    files = (FileShard(shards[each]["keys"], shards[each]["values"]) for each in wanted)
    return SavedTable(name, "", tuple(files))
