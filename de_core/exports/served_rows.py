"""Chooses a table's rows for an export, their storage format and the result for unknown ids."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import DTypeLike, TensorLike, UnknownIds
from de_core.snapshot import table_files
from de_core.tables.policy import RESERVED_OWNER
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import TableSpec

_T = TypeVar("_T")

_STORED = ("float32", "float16", "bfloat16", "int8")
#: The named results for an id without a row.
_NAMES = ("initial", "zeros", "error")


@dataclasses.dataclass(frozen=True)
class KeepRows:
    """Selects the rows that an export keeps. A row must satisfy all given conditions.

    The number of writes, the time of the last write and the score are metadata columns. A Variable
    has a column only if its `eviction` or `restrict_policy` needs it.

    Args:
        min_uses: Keep rows that were written at least this often. Needs `de.EvictionLFU` or
            `de.FrequencyRestrictPolicy`.
        max_age_seconds: Keep rows whose last write is at most this many seconds old. Needs
            `de.EvictionLRU` or `de.TimestampRestrictPolicy`.
        min_score: Keep rows with at least this score. Needs `de.EvictionScore`.
        where: A function of keys [n] that returns bool [n]: whether to keep each key.

    Raises:
        TypeError: A bound is not a number, or `where` is not callable.
        ValueError: No condition is given, or a bound is not finite.

    Example:
    >>> import tempfile, de_core as de
    >>> users = de.Variable(dim=1, name="users", restrict_policy=de.FrequencyRestrictPolicy)
    >>> users.upsert([1, 1, 2], [[1.0], [2.0], [3.0]])
    >>> module = tf.Module()
    >>> module.users = users
    >>> specs = [tf.TensorSpec([None], tf.int64, name="ids")]
    >>> module.look = tf.function(users.lookup, input_signature=specs)
    >>> path = de.export(module, tempfile.mkdtemp(), module.look, keep=de.KeepRows(min_uses=2))
    >>> path.report["tables"]["users"]["rows"]
    1
    """

    min_uses: float | None = None
    max_age_seconds: float | None = None
    min_score: float | None = None
    where: Callable[[tf.Tensor], TensorLike] | None = None

    def __post_init__(self) -> None:
        names = ("min_uses", "max_age_seconds", "min_score")
        given = {name: bound for name in names if (bound := getattr(self, name)) is not None}
        for name, bound in given.items():
            if isinstance(bound, bool) or not isinstance(bound, numbers.Real):
                raise TypeError(f"`{name}` must be a number. {received(**{name: bound})}")
            if not math.isfinite(bound):
                raise ValueError(f"`{name}` must be finite. {received(**{name: bound})}")
        if self.where is not None and not callable(self.where):
            raise TypeError(f"`where` must be a function of keys. {received(where=self.where)}")
        if self.where is None and not given:
            raise ValueError("A bound or `where` must be given. Received: none of them.")

    def bounds(self) -> dict[str, float]:
        """Returns the least value of each bounded metadata column, by name."""
        least: dict[str, float] = {}
        if self.min_uses is not None:
            least["uses"] = self.min_uses
        if self.max_age_seconds is not None:
            least["time"] = round((time.time() - self.max_age_seconds) * 1e6)
        if self.min_score is not None:
            least["score"] = self.min_score
        return least


@dataclasses.dataclass(frozen=True)
class ServedRows:
    """Chooses how a SavedModel stores one table.

    Attributes:
        dtype: Storage format of values; None for the table's value dtype.
        oov: Result for unknown ids; see `_of_unknown_ids`.
        keep: Selects the rows; None for all rows.
    """

    dtype: str | None = None
    oov: UnknownIds = "initial"
    keep: KeepRows | None = None

    def write(
        self, table: ShardedTable, paths: Sequence[str], **attributes: Any
    ) -> list[dict[str, Any]]:
        """Writes each shard of a table to a snapshot file and returns the reports.

        `attributes` are attributes of `library.de_table_save`.
        """
        if self.dtype is not None:
            attributes["store_as"] = self.dtype
        if self.keep is not None and (bounds := self.keep.bounds()):
            slots = table.slots()
            for column in bounds:
                if f"{RESERVED_OWNER}/{column}" not in slots:
                    raise ValueError(
                        f"Table {table.name!r} must keep the column {column!r} of its rows: make "
                        "the Variable with an `eviction` or `restrict_policy` that needs it. "
                        f"Received: keep={self.keep}."
                    )
                attributes.setdefault("keep_slots", []).extend([RESERVED_OWNER, column])
            attributes["keep_at_least"] = [repr(float(bound)) for bound in bounds.values()]
        return table_files.write(
            table,
            paths,
            metadata=_of_unknown_ids(self.oov, table.spec),
            where=None if self.keep is None else self.keep.where,
            values_only=True,
            **attributes,
        )


def of_tables(
    names: Mapping[str, ShardedTable],
    dtype: DTypeLike | Mapping[str, DTypeLike] | None,
    oov: UnknownIds | Mapping[str, UnknownIds],
    keep: KeepRows | Mapping[str, KeepRows] | None,
) -> dict[str, ServedRows]:
    """Returns how to store each table.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of range, or names a table that does not exist.
    """
    for argument, value in (("dtype", dtype), ("oov", oov), ("keep", keep)):
        unknown = sorted(set(value) - set(names)) if isinstance(value, Mapping) else []
        if unknown:
            raise ValueError(
                f"`{argument}` must name tables of the model, {sorted(names)}. Received: {unknown}."
            )
    rows = {}
    for name, table in names.items():
        own = _of(keep, name, None)
        if own is not None and not isinstance(own, KeepRows):
            raise TypeError(f"`keep` must be a de.KeepRows. {received(keep=own)}")
        policy: UnknownIds = _of(oov, name, "initial")
        _of_unknown_ids(policy, table.spec)
        stored, wanted, values = None, _of(dtype, name, None), table.spec.value_dtype
        if wanted is not None:
            with contextlib.suppress(TypeError):
                stored = tf.as_dtype(wanted).name
            if stored not in _STORED:
                raise ValueError(
                    f"`dtype` must be one of {', '.join(_STORED)}. {received(dtype=wanted)}"
                )
            if isinstance(dtype, Mapping) and not values.is_floating:
                raise ValueError(
                    "Only floating-point values are stored as another dtype. Received: "
                    f"dtype={stored!r} for table {name!r} of {values.name}."
                )
        rows[name] = ServedRows(stored if values.is_floating else None, policy, own)
    return rows


def total(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Combines the reports of a table's shards: sums rows and bytes, merges the errors."""
    summed: dict[str, Any] = {"rows": 0, "tombstones": 0, "bytes": 0}
    weighted = 0.0
    for report in reports:
        for name in ("rows", "tombstones", "bytes"):
            summed[name] += report[name]
        if "max_error" in report:
            # An element that overflows its dtype has an infinite error, which JSON stores as null.
            most, mean = report["max_error"], report["mean_error"]
            largest = math.inf if most is None else most
            summed["max_error"] = max(largest, summed.get("max_error", 0.0))
            if report["rows"]:
                weighted += (math.inf if mean is None else mean) * report["rows"]
    if "max_error" in summed:
        summed["mean_error"] = weighted / max(summed["rows"], 1)
    return summed


def _of(value: Any, name: str, default: _T) -> _T:
    return value.get(name, default) if isinstance(value, Mapping) else value


def _of_unknown_ids(oov: UnknownIds, spec: TableSpec) -> list[str | bytes]:
    """Returns `oov` as metadata of a snapshot file: alternating keys and values.

    Args:
        oov: "initial", "zeros", "error"; a constant: a number, or `bytes` for a table of strings;
            or a row [dim].
        spec: The table's spec.

    Raises:
        TypeError: `oov` is none of these.
        ValueError: `oov` is an unknown name, a row of another shape, or a number that the values
            cannot represent.
    """
    strings = spec.value_dtype.name == "string"
    if isinstance(oov, str):
        if oov in _NAMES:
            return ["oov", oov]
        raise ValueError(
            f"`oov` must be one of {', '.join(map(repr, _NAMES))}, a constant or a row; a constant "
            f"for a table of strings is `bytes`. {received(oov=oov)}"
        )
    if isinstance(oov, bytes) and strings:
        return ["oov", "constant", "oov_value", oov]
    # A float would round a large integer, so it is stored as a row.
    is_large = isinstance(oov, numbers.Integral) and 2**53 < abs(int(oov)) < 2**63
    if isinstance(oov, (bool, numbers.Real)) and not strings and not is_large:
        _check_fits(oov, np.asarray(float(oov)), spec)
        return ["oov", "constant", "oov_value", repr(float(oov))]
    if oov is None or isinstance(oov, bytes) or strings:
        raise TypeError(
            f"`oov` must fit the table's values, {spec.value_dtype.name}. {received(oov=oov)}"
        )
    row = np.full(spec.dim, oov) if is_large else np.asarray(oov)
    if row.shape != (spec.dim,) or row.dtype.kind not in "biufV":
        raise ValueError(
            f"A default row of unknown ids must be numbers of shape ({spec.dim},). "
            f"Received: shape={row.shape}, dtype={row.dtype}."
        )
    _check_fits(oov, row, spec)
    return ["oov", "row", "oov_value", row.astype(spec.value_dtype.as_numpy_dtype).tobytes()]


def _check_fits(oov: UnknownIds, wanted: np.ndarray[Any, Any], spec: TableSpec) -> None:
    """Raises ValueError unless the table's value dtype can hold `wanted`.

    Rounding to a floating-point dtype is allowed.
    """
    dtype = spec.value_dtype
    with np.errstate(over="ignore", invalid="ignore"):
        stored = wanted.astype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        fits = bool(np.all(np.isfinite(stored.astype(np.float64))))
    else:
        # Python compares whole numbers of any size exactly.
        fits = bool(np.all(stored.astype(object) == np.asarray(oov).astype(object)))
    if not fits:
        raise ValueError(
            f"`oov` must be finite numbers that {dtype.name} can hold. {received(oov=oov)}"
        )
