"""Reads one snapshot file, a few sections at a time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.ops import file_metadata, library

_STEP_BYTES = 16 << 20
_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)


def about(path: str, *, verified: bool = False, own: bool = False) -> dict[str, Any]:
    """Returns a snapshot file's description, such as `rows`, `id` and `metadata`.

    Args:
        path: The file.
        verified: True to check every byte first.
        own: True to describe the table's own metadata too, which may be long.
    """
    asked = {"path": path, "verify": verified, "own": own}
    with tf.init_scope():
        if tf.executing_eagerly():
            return dict(json.loads(library.de_snapshot_info(**asked).numpy()))
    # In a TensorFlow 1 graph no session exists yet, so use a session of our own.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return dict(json.loads(session.run(library.de_snapshot_info(**asked))))


def metadata_of(info: dict[str, Any]) -> list[str | bytes]:
    """Returns the metadata of a file's description as an op that writes a file takes it."""
    entries: list[str | bytes] = []
    for key, value in info["metadata"].items():
        if key != "de.digest":  # `file_metadata` adds its own
            entries += [key, bytes.fromhex(value["hex"]) if isinstance(value, dict) else value]
    return file_metadata(entries)


def verify(paths: Sequence[str]) -> None:
    """Checks every byte of the files.

    Raises:
        tf.errors.DataLossError: A file is damaged.
        tf.errors.InvalidArgumentError: A file is not a snapshot file.
    """
    for path in paths:
        about(path, verified=True)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Some rows of a file.

    Attributes:
        keys: int64 [n], or bytes objects [n].
        deleted: bool [n]; True for a tombstone, a key whose row was removed.
        values: [n, dim], or bytes objects.
        slots: uint8 [n, m]; the bytes of the optimizer slots.
    """

    keys: np.ndarray[Any, Any]
    deleted: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]
    slots: np.ndarray[Any, Any]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, which: Any) -> Rows:
        """Returns the rows that a mask or an index array selects."""
        return Rows(*(getattr(self, field.name)[which] for field in dataclasses.fields(self)))


class SnapshotFile:
    """A snapshot file.

    Raises:
        tf.errors.OpError: The file is not a snapshot file, or its header, directory or footer is
            damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: The file's description; see the op DeSnapshotInfo.
        self.info = about(path)

    @property
    def rows(self) -> int:
        """Number of rows and tombstones."""
        return int(self.info["rows"] + self.info["tombstones"])

    def batches(self) -> Iterator[Rows]:
        """Yields all rows and tombstones in the order of their hashes, a few MiB at a time.

        Raises:
            tf.errors.DataLossError: A section is damaged.
        """
        for read in self._read(key_dtype=tf.as_dtype(self.info["key_dtype"])):
            yield Rows(*(each.numpy() for each in read))

    def keys(self, dtype: tf.DType) -> Iterator[tf.Tensor]:
        """Yields the keys [n] of rows and tombstones as `dtype`, in the order of their hashes."""
        for keys, *_ in self._read(key_dtype=dtype, with_values=False):
            yield keys

    def _read(self, **attributes: Any) -> Iterator[tuple[tf.Tensor, ...]]:
        sections = self.info["sections"]
        step = max(1, _STEP_BYTES * sections // max(self.info["bytes"], 1))
        for first in range(0, sections, step):
            yield library.de_snapshot_read(
                self.path,
                tf.constant(first, tf.int64),
                tf.constant(min(step, sections - first), tf.int64),
                value_dtype=tf.as_dtype(self.info["reads_as"]),
                **attributes,
            )

    def slots_of(self, rows: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the slots of rows by "owner/name", each [n, width].

        Args:
            rows: uint8 [n, m], as `Rows.slots`.
        """
        found = {}
        value_dtype = tf.as_dtype(self.info["value_dtype"])
        element_bytes = 8 if value_dtype == tf.string else value_dtype.size
        value_bytes = int(self.info["dim"]) * element_bytes
        for slot in self.info["slots"]:
            dtype = tf.as_dtype(slot["dtype"])
            begin = slot["offset"] - value_bytes
            data = np.ascontiguousarray(rows[:, begin : begin + slot["width"] * dtype.size])
            found[f"{slot['owner']}/{slot['name']}"] = data.view(dtype.as_numpy_dtype)
        return found


def hashes(keys: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns each key's hash, uint64 [n], as `docs/reference/snapshot-format.md` defines it.

    `keys` are int64 or bytes objects [n].
    """
    if keys.dtype == object:
        words = np.array([_hash_bytes(key) for key in keys], np.uint64)
    else:
        words = keys.astype(np.int64).view(np.uint64)
    return _mix(words)


def _mix(words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)


def _mix_one(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & int(_WORD)
    word = (word ^ word >> 27) * 0x94D049BB133111EB & int(_WORD)
    return word ^ word >> 31


def _hash_bytes(key: bytes) -> int:
    state = 0x9E3779B97F4A7C15 ^ len(key) * 0xFF51AFD7ED558CCD & int(_WORD)
    for at in range(0, len(key), 8):
        word = int.from_bytes(key[at : at + 8], "little")
        state = _mix_one(state ^ word) + 0x9E3779B97F4A7C15 & int(_WORD)
    return state
