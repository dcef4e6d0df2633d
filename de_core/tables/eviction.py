"""Eviction policies: they decide which rows a table removes (`Variable`'s argument `eviction`).

A row is evicted whole: value, optimizer slots and metadata. Then a lookup of its key
returns the initial row again, and a later write creates a new row.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import ClassVar

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras
from de_core.tables.admission import Configured

#: The engine's numbers for the metadata columns.
COLUMNS = {"time": 1, "uses": 2, "score": 3, "step": 4}


class Eviction(Configured):
    """Base class of all eviction policies. Equal policies compare equal."""

    #: The metadata column that ranks rows, or an empty string.
    column: ClassVar[str] = ""

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns the engine's settings for shard `index` of `tables` shards."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class _Bounded(Eviction):
    """Base class of the policies that bound a table's size."""

    max_rows: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is None and self.max_bytes is None:
            raise ValueError(
                "`max_rows` or `max_bytes` must be given. "
                + received(max_rows=self.max_rows, max_bytes=self.max_bytes)
            )
        check_integer("max_rows", self.max_rows, 1, or_none=True)
        check_integer("max_bytes", self.max_bytes, 2**16, or_none=True)

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns the engine's settings, with the shard's part of the bounds."""
        fields = {"evict_by": COLUMNS[self.column]}
        for name, bound, least in (
            ("max_rows", self.max_rows, 1),
            ("max_bytes", self.max_bytes, 2**16),
        ):
            if bound is None:
                continue
            if bound < least * tables:
                raise ValueError(
                    f"`{name}` must be at least {least} per shard, {least * tables} for {tables} "
                    f"shards. {received(**{name: bound})}"
                )
            fields[name] = bound // tables + (index < bound % tables)
        return fields


@dataclasses.dataclass(frozen=True)
class _BoundedByUse(_Bounded):
    """Base class of the policies that may count a lookup as a use."""

    count_lookups: bool = False

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns the engine's settings."""
        return {**super().fields(index, tables), "count_reads": int(self.count_lookups)}


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionLRU(_BoundedByUse):
    """Bounds a table. When it is full, it evicts the rows whose last write is oldest.

    The shards of a Variable share the bound evenly. Rows are ranked by the time of the last write.
    When a write exceeds a shard's bound, the shard ranks one part of its rows, about 8,000, and
    evicts the sixteenth of them with the lowest rank. The next such write takes the next part. So
    no write takes longer because the table has more rows. Rows of equal rank are evicted in the
    order of their keys' hash. After a write the shard is within its bound. During a write it may
    exceed the bound by 512 rows per writing thread.

    Memory: 8 bytes per row.

    Args:
        max_rows: Greatest number of rows, at least 1 per shard; None for no bound.
        max_bytes: Greatest memory in bytes, at least 65536 per shard; None for no bound. It counts
            rows with their slots and metadata, the index, and strings.
        count_lookups: Whether a lookup counts as a use, like a write.

    Raises:
        TypeError: A bound is not a whole number.
        ValueError: No bound is set, or a bound is too small.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, eviction=de.EvictionLRU(max_rows=100))
    >>> for first in range(0, 1000, 10):
    ...     users.upsert(range(first, first + 10), [[1.0]] * 10)
    >>> int(users.size()) <= 100, bool(users.contains([999])[0])
    (True, True)
    """

    column: ClassVar[str] = "time"


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionLFU(_BoundedByUse):
    """Bounds a table. When it is full, it evicts the rows that were written least often.

    An optimizer step counts one write per row. `upsert` and similar methods count each occurrence
    of the key. The arguments and all other behavior are as for `EvictionLRU`. With `count_lookups`
    it needs 16 bytes per row.

    Example:
    >>> EvictionLFU(max_rows=1_000_000)
    EvictionLFU(max_rows=1000000, max_bytes=None, count_lookups=False)
    """

    column: ClassVar[str] = "uses"


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionScore(_Bounded):
    """Bounds a table. When it is full, it evicts the rows with the lowest scores.

    `Variable.assign_scores` sets the scores, which are whole numbers. A new row has score 0. All
    other behavior is as for `EvictionLRU`, but there is no `count_lookups`.

    Example:
    >>> import de_core as de
    >>> items = de.Variable(dim=1, eviction=de.EvictionScore(max_rows=2))
    >>> items.upsert([1, 2], [[1.0], [2.0]])
    >>> items.assign_scores([1], [5])
    >>> items.upsert([3], [[3.0]])
    >>> bool(items.contains([1])[0]), int(items.size())
    (True, 2)
    """

    column: ClassVar[str] = "score"


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionTTL(Eviction):
    """Evicts rows that were not written for some time.

    Once a row has expired, a lookup returns the initial row. `size` still counts the expired row
    until its memory is freed. `Variable.evict_expired` frees it. Otherwise it is freed after twice
    as many further writes as the table has rows.

    Memory: 8 bytes per row for each of `steps` and `seconds` that is set.

    Args:
        steps: A row expires after this many optimizer steps without a write; None for no limit.
            Only steps that use this table count.
        seconds: A row expires after this many seconds without a write; None for no limit.

    Raises:
        TypeError: `steps` is not a whole number, or `seconds` is not a number.
        ValueError: Neither argument is set, or one of them is not positive.

    Example:
    >>> EvictionTTL(seconds=7 * 24 * 3600)
    EvictionTTL(steps=None, seconds=604800)
    """

    steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ValueError(
                "`steps` or `seconds` must be given. "
                + received(steps=self.steps, seconds=self.seconds)
            )
        check_integer("steps", self.steps, 1, or_none=True)
        if self.seconds is None:
            return
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, numbers.Real):
            raise TypeError(f"`seconds` must be a number. {received(seconds=self.seconds)}")
        if not (math.isfinite(self.seconds) and 1e-6 <= self.seconds <= 1e12):
            raise ValueError(
                f"`seconds` must be from 0.000001 to 10^12. {received(seconds=self.seconds)}"
            )

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns the engine's settings."""
        del index, tables
        fields = {}
        if self.steps is not None:
            fields["ttl_steps"] = self.steps
        if self.seconds is not None:
            fields["ttl_micros"] = round(self.seconds * 1_000_000)
        return fields
