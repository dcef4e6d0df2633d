"""Which rows a table gives up: the policies of a `Variable`'s argument `eviction`.

A row goes whole: value, optimizer slots and metadata. Then its key reads as its initial row again,
and a later write begins a new row.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any, ClassVar

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.tables.admission import check_integer

#: The engine's numbers of the metadata columns.
COLUMNS = {"time": 1, "uses": 2, "score": 3, "step": 4}


class Eviction:
    """What all eviction policies are. Equal policies compare equal."""

    #: The metadata column that ranks rows, if one does.
    column: ClassVar[str] = ""

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns what the engine is told for table `index` of `tables`."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal policy of."""
        return dict(vars(self))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Eviction:
        """Makes a policy of `get_config`'s result."""
        return cls(**config)


@dataclasses.dataclass(frozen=True)
class _Bounded(Eviction):
    """A table of bounded size."""

    max_rows: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is None and self.max_bytes is None:
            raise ValueError(
                "`max_rows` or `max_bytes` must be given. "
                + received(max_rows=self.max_rows, max_bytes=self.max_bytes)
            )
        if self.max_rows is not None:
            check_integer("max_rows", self.max_rows, 1, 2**62)
        if self.max_bytes is not None:
            check_integer("max_bytes", self.max_bytes, 2**16, 2**62)

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns what the engine is told: a table's share of the bounds."""
        fields = {"evict_by": COLUMNS[self.column]}
        for name, bound, least in (
            ("max_rows", self.max_rows, 1),
            ("max_bytes", self.max_bytes, 2**16),
        ):
            if bound is None:
                continue
            if bound < least * tables:
                raise ValueError(
                    f"`{name}` must be at least {least} for each table, {least * tables} for "
                    f"{tables} of them. {received(**{name: bound})}"
                )
            fields[name] = bound // tables + (index < bound % tables)
        return fields


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionLRU(_Bounded):
    """Bounds a table; when it is full, the rows go whose last write is the longest ago.

    Whenever a write leaves more than the bound, the table gives up one sixteenth of its rows, those
    that rank lowest over all of its shards; rows of one rank go in the order of their keys' hash.
    After a write the table is within its bound. During one it may hold 512 rows more for each
    thread that writes. Several tables of a Variable share the bound evenly.

    Memory: 8 bytes a row.

    Args:
        max_rows: At least 1 a table; None for no bound.
        max_bytes: At least 65536 a table; None for no bound. What counts are rows with their slots
            and metadata, the index, and the strings in use.
        count_lookups: Whether a lookup is a use, too.

    Raises:
        TypeError: A bound is no whole number.
        ValueError: There is no bound, or it is too small.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, eviction=de.EvictionLRU(max_rows=100))
    >>> for first in range(0, 1000, 10):
    ...     users.upsert(range(first, first + 10), [[1.0]] * 10)
    >>> int(users.size()) <= 100, bool(users.contains([999])[0])
    (True, True)
    """

    column: ClassVar[str] = "time"
    count_lookups: bool = False

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns what the engine is told."""
        return {**super().fields(index, tables), "count_reads": int(self.count_lookups)}


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionLFU(_Bounded):
    """Bounds a table; when it is full, the rows go that were written least often.

    An optimizer step writes a row once, `upsert` and the like once an occurrence. Else as
    `EvictionLRU`, its arguments too. With `count_lookups` it takes 16 bytes a row.

    Example:
    >>> EvictionLFU(max_rows=1_000_000)
    EvictionLFU(max_rows=1000000, max_bytes=None, count_lookups=False)
    """

    column: ClassVar[str] = "uses"
    count_lookups: bool = False

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns what the engine is told."""
        return {**super().fields(index, tables), "count_reads": int(self.count_lookups)}


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class EvictionScore(_Bounded):
    """Bounds a table; when it is full, the rows go whose score is lowest.

    Scores are whole numbers that `Variable.assign_scores` sets; a new row has 0. Else as
    `EvictionLRU`, without `count_lookups`.

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
    """Gives up rows that were not written for some time.

    An expired row reads as its initial row at once. Its memory is free for other rows after twice
    as many further writes as the table has rows, or when `Variable.evict_expired` is called; until
    then `size` counts it.

    Memory: 8 bytes a row for each of the two.

    Args:
        steps: A row that was last written in optimizer step s is gone after step s + steps; None
            for no limit. The steps are those that the table took part in.
        seconds: The same in time; None for no limit.

    Raises:
        TypeError: `steps` is no whole number, or `seconds` no number.
        ValueError: Neither is given, or one is not positive.

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
        if self.steps is not None:
            check_integer("steps", self.steps, 1, 2**62)
        if self.seconds is None:
            return
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, numbers.Real):
            raise TypeError(f"`seconds` must be a number. {received(seconds=self.seconds)}")
        if not (math.isfinite(self.seconds) and 1e-6 <= self.seconds <= 1e12):
            raise ValueError(
                f"`seconds` must be from 0.000001 to 10^12. {received(seconds=self.seconds)}"
            )

    def fields(self, index: int, tables: int) -> dict[str, int]:
        """Returns what the engine is told."""
        del index, tables
        fields = {}
        if self.steps is not None:
            fields["ttl_steps"] = self.steps
        if self.seconds is not None:
            fields["ttl_micros"] = round(self.seconds * 1_000_000)
        return fields
