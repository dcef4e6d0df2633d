"""Compares two snapshot files in bounded memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from de_core.snapshot.file import Rows, SnapshotFile, hashes


@dataclasses.dataclass(frozen=True)
class Difference:
    """Keys that differ in one section of two files, as int64 or bytes objects.

    Attributes:
        removed: Keys only in the first file.
        added: Keys only in the second file.
        changed: Keys in both files with a different value or slot, or a tombstone in one file.
        same: Number of equal keys.
    """

    removed: np.ndarray[Any, Any]
    added: np.ndarray[Any, Any]
    changed: np.ndarray[Any, Any]
    same: int


def compare(
    first: SnapshotFile, second: SnapshotFile, on_read: Callable[[int], object] = bool
) -> Iterator[Difference]:
    """Yields the differences, in the order of the keys' hashes.

    Files store their keys in this order, so one pass reads both files in parallel. Slots are
    compared only if both files have the same slots.

    Args:
        first: A file.
        second: Another file with the same dtypes of keys and values.
        on_read: Called with the number of rows after each read.

    Raises:
        ValueError: The files have different dtypes.
    """
    for name in ("key_dtype", "reads_as", "dim"):
        if first.info[name] != second.info[name]:
            raise ValueError(
                f"Files must hold the same {name} to be compared. Received: "
                f"{first.info[name]} in {first.path!r}, {second.info[name]} in {second.path!r}."
            )
    slots = first.info["slots"] == second.info["slots"]
    sides = (_Side(first, on_read), _Side(second, on_read))
    while any([side.more() for side in sides]):  # a list, so that `more` runs for both sides
        end = min((side.end for side in sides if not side.finished), default=None)
        left, right = (side.up_to(end) for side in sides)
        yield _compared(left, right, slots)


class _Side:
    """Rows of one file that were read but not compared yet."""

    def __init__(self, file: SnapshotFile, on_read: Callable[[int], object]) -> None:
        self._batches = file.batches()
        self._on_read = on_read
        self._waiting: Rows | None = None
        self._hashes = np.zeros([0], np.uint64)
        self.finished = False
        self.end = np.uint64(0)

    def more(self) -> bool:
        if not len(self._hashes) and not self.finished:
            batch = next(self._batches, None)
            if batch is None:
                self.finished = True
            else:
                self._on_read(len(batch))
                self._waiting, self._hashes = batch, hashes(batch.keys)
                self.end = self._hashes.max()
        return len(self._hashes) > 0

    def up_to(self, end: Any) -> Rows | None:
        if self._waiting is None:
            return None
        taken = np.ones(len(self._hashes), bool) if end is None else self._hashes <= end
        rows = self._waiting.take(taken)
        self._waiting, self._hashes = self._waiting.take(~taken), self._hashes[~taken]
        return rows


def _compared(left: Rows | None, right: Rows | None, slots: bool) -> Difference:
    if left is None or right is None:
        nothing = np.zeros([0], np.int64)
        return Difference(
            nothing if left is None else left.keys,
            nothing if right is None else right.keys,
            nothing,
            0,
        )
    both, at_left, at_right = np.intersect1d(
        left.keys, right.keys, assume_unique=True, return_indices=True
    )
    a, b = left.take(at_left), right.take(at_right)
    pair = [each.values for each in (a, b)]
    if a.values.dtype != object:  # compare bits: NaN equals itself, and -0.0 differs from 0.0
        pair = [np.ascontiguousarray(each).view(np.uint8) for each in pair]
    same = (a.deleted == b.deleted) & (pair[0] == pair[1]).all(axis=1)
    if slots:
        same &= (a.slots == b.slots).all(axis=1)
    return Difference(
        np.delete(left.keys, at_left), np.delete(right.keys, at_right), both[~same], int(same.sum())
    )
