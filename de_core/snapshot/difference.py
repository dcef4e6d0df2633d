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
    reads = [_read(each, on_read) for each in (first, second)]
    # For each file, the rows that were read but not compared yet, with their hashes.
    waiting = [next(each, None) for each in reads]
    while present := [each for each in waiting if each is not None]:
        end = min(own.max() for _, own in present)
        sides: list[Rows | None] = [None, None]
        for number, each in enumerate(waiting):
            if each is not None:
                rows, own = each
                due = own <= end
                sides[number] = rows.take(due)
                left = (rows.take(~due), own[~due])
                waiting[number] = next(reads[number], None) if due.all() else left
        yield _compared(*sides, slots)


def _read(
    file: SnapshotFile, on_read: Callable[[int], object]
) -> Iterator[tuple[Rows, np.ndarray[Any, Any]]]:
    for batch in file.batches():
        on_read(len(batch))
        yield batch, hashes(batch.keys)


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
