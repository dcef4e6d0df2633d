"""Pooled lookups: combine the rows of each segment of ids, without storing all rows at once."""

from __future__ import annotations

from typing import Literal, get_args

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.lookup.segments import Segments, segment_ids
from de_core.tables import keys_and_values
from de_core.tables.spec import arithmetic_dtype
from de_core.tables.table import Table
from de_core.variable.variable import Variable

#: How rows r with weights w are pooled. "sum": sum(w * r). "mean": sum(w * r) / sum(w).
#: "sqrtn": sum(w * r) / sqrt(sum(w^2)).
Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS: tuple[Combiner, ...] = get_args(Combiner)


def checked_combiner(combiner: Combiner | None) -> Combiner:
    """Returns `combiner`, or "mean" for None."""
    if combiner is None:
        return "mean"
    if combiner not in COMBINERS:
        raise ValueError(
            f"`combiner` must be one of {', '.join(COMBINERS)}. {received(combiner=combiner)}"
        )
    return combiner


def pooled_rows(
    variable: Variable,
    segments: Segments,
    *,
    combiner: Combiner = "sum",
    max_norm: float | None = None,
) -> tf.Tensor:
    """Looks up ids and pools the rows of each segment.

    One op computes the sums and reads a few rows at a time. Another op computes the gradient, with
    one slice per distinct id. float16 and bfloat16 rows are summed in float32. In these cases all
    rows are stored in memory first: with `max_norm`, for integer rows, for tables on several
    devices or in other processes, and for the storage of a `KVCreator`.

    Returns:
        Pooled rows of the value dtype, [segments, dim]; zeros for a segment without ids.

    Raises:
        TypeError: The ids have another dtype than the keys. Or the rows are neither floating point
            nor, with combiner "sum", integers.
    """
    ids = keys_and_values.checked_keys(segments.ids, variable._table)
    row_splits, weights = segments.row_splits, segments.weights
    value_dtype = variable.value_dtype
    if not value_dtype.is_floating and (not value_dtype.is_integer or combiner != "sum"):
        raise TypeError(
            "Pooled rows must be of a floating-point dtype, or integers with combiner='sum'. "
            f"Received: value_dtype={value_dtype.name}, combiner={combiner!r} for table "
            f"{variable.name!r}."
        )
    real = arithmetic_dtype(value_dtype)
    if weights is not None:
        weights = tf.cast(weights, real)
    pools = value_dtype.is_floating and all(table.pools for table in variable.tables)
    if max_norm is not None or not pools or not variable._table.is_on_one_device:
        rows = variable._lookup_scaled(ids, max_norm, real)
        return tf.cast(pooled(rows, row_splits, weights, combiner), value_dtype)
    sums = tf.ensure_shape(_sums(variable, ids, row_splits, weights), [None, variable.dim])
    return tf.cast(_normalized(sums, row_splits, weights, combiner), value_dtype)


def pooled_sums(
    handle: tf.Tensor,
    keys: tf.Tensor,
    row_splits: tf.Tensor,
    weights: list[tf.Tensor],
    anchors: list[tf.Tensor],
    *,
    value_dtype: tf.DType,
    dim: int,
) -> tf.Tensor:
    """Returns the sum of each segment's rows, [segments, dim], by one op.

    `weights` has at most one tensor, the factor of each row, [n]. `anchors` has the table's anchor
    if gradients are needed.
    """
    [sums] = library.de_lookup_features(
        [handle],
        [keys],
        [row_splits],
        weights,
        anchors,
        anchored=[0] * len(anchors),
        Tkeys=[keys.dtype] * len(anchors),
        Trows=[arithmetic_dtype(value_dtype)],
        table_of=[0],
        dims=[dim],
        Tvalues=[value_dtype],
        kinds=["ragged"],
        combiners=["sum"],
        lengths=[-1],
        weighted=[bool(weights)],
        padded=[False],
        padding=[""],
        joined=False,
    )
    return sums


def pooled(
    rows: tf.Tensor, row_splits: tf.Tensor, weights: tf.Tensor | None, combiner: Combiner
) -> tf.Tensor:
    """Pools rows that were looked up.

    Returns:
        Pooled rows of the dtype of `rows`, [segments, dim]; zeros for a segment without rows.
    """
    value_dtype = rows.dtype
    real = arithmetic_dtype(value_dtype)
    rows = tf.cast(rows, real)
    if weights is not None:
        weights = tf.cast(weights, real)
        rows *= weights[:, None]
    sums = tf.ensure_shape(_segment_sum(rows, row_splits), [None, rows.shape[1]])
    return tf.cast(_normalized(sums, row_splits, weights, combiner), value_dtype)


def _normalized(
    sums: tf.Tensor, row_splits: tf.Tensor, weights: tf.Tensor | None, combiner: str
) -> tf.Tensor:
    if combiner == "sum":
        return sums
    if weights is None:
        total = tf.cast(row_splits[1:] - row_splits[:-1], sums.dtype)
    else:
        squares = weights if combiner == "mean" else tf.square(weights)
        total = _segment_sum(squares, row_splits)
    norms = total if combiner == "mean" else tf.sqrt(total)
    return tf.math.divide_no_nan(sums, norms[:, None])


def _sums(
    variable: Variable,
    ids: tf.Tensor,
    row_splits: tf.Tensor,
    weights: tf.Tensor | None,
) -> tf.Tensor:
    table = variable._table
    anchors = variable._anchors()
    variable._collect_penalty(ids)

    def of_table(
        shard: Table, part: tf.Tensor, splits: tf.Tensor, factors: list[tf.Tensor]
    ) -> tf.Tensor:
        types = {"value_dtype": table.spec.value_dtype, "dim": table.spec.dim}
        return shard.run(pooled_sums, part, splits, factors, anchors, **types)

    factors = [] if weights is None else [weights]
    if len(table.tables) == 1:
        return of_table(table.tables[0], ids, row_splits, factors)
    segments = tf.size(row_splits, tf.int64) - 1
    parts = table.router.split(ids, segment_ids(row_splits), *factors)
    sums = []
    for shard, (part, segments_of, *own) in zip(table.tables, parts, strict=True):
        _, splits = library.de_segment_order(segments_of, segments, sorted=True)
        sums.append(of_table(shard, part, splits, own))
    return tf.add_n(sums)


def _segment_sum(values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    count = tf.size(row_splits) - 1
    return tf.math.unsorted_segment_sum(values, segment_ids(row_splits), count)
