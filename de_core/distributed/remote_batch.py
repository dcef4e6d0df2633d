"""Reads and updates several tables on the same servers with one request to each server.

TensorFlow sends one request per tensor between two processes. So this module packs the keys of all
tables on a server into one tensor and unpacks them there. It packs the answers too.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable

# A table's number in the batch, and a shard's number in the table.
_Member = tuple[int, int]


def may_share(table: ShardedTable) -> bool:
    """Returns whether a table's requests may be packed with requests to other tables."""
    return table.is_remote and not table.router.is_spread


def find(tables: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads rows of several tables.

    Args:
        tables: Tables for which `may_share` is true, each once.
        keys: For each table, distinct keys [n].

    Returns:
        For each table, its rows [n, dim].
    """
    places, parts = zip(
        *(each.router.divided(part) for each, part in zip(tables, keys, strict=True)), strict=True
    )
    found: dict[_Member, tf.Tensor] = {}
    for (device, _), members in _by_server(
        tables, [(each.spec.value_dtype,) for each in tables]
    ).items():
        asked = [parts[number][shard] for number, shard in members]
        parcel = _packed(asked)
        with tf.device(device):
            answers = [
                tables[number].tables[shard].find(part)[0]
                for (number, shard), part in zip(
                    members, _unpacked(parcel, [part.dtype for part in asked]), strict=True
                )
            ]
            answer = tf.concat([tf.reshape(each, [-1]) for each in answers], 0)
        dims = [tables[number].spec.dim for number, _ in members]
        sizes = [tf.size(part) * dim for part, dim in zip(asked, dims, strict=True)]
        rows = tf.split(answer, tf.stack(sizes), num=len(members))
        for member, dim, values in zip(members, dims, rows, strict=True):
            found[member] = tf.reshape(values, [-1, dim])
    return [
        tf.dynamic_stitch(
            places[number], [found[number, shard] for shard in range(each.router.count)]
        )
        for number, each in enumerate(tables)
    ]


def apply(
    trained: Sequence[tuple[tf.IndexedSlices, ShardedTable, tf.Tensor]],
    owner: tf.Tensor,
    **attributes: Any,
) -> list[tf.Operation | None]:
    """Runs one optimizer step in several tables.

    Args:
        trained: Triples of a gradient, a table for which `may_share` is true, and hyperparameters,
            double [k]. Tables with equal hyperparameters must pass the same tensor.
        owner: Scalar string, the name under which the tables keep the optimizer's slots.
        **attributes: Attributes of `library.de_table_apply`.

    Returns:
        One operation per table; in eager mode, None per table.
    """
    tables = [table for _, table, _ in trained]
    parts: list[list[list[tf.Tensor]]] = []
    for gradient, table, _ in trained:
        batch = summed_rows(table.keys_of(gradient), gradient.values)
        parts.append(table.router.split(*batch))
    kinds = [(values.values.dtype, id(hyper)) for values, _, hyper in trained]
    done: dict[int, list[tf.Operation | None]] = collections.defaultdict(list)
    for (device, _), members in _by_server(tables, kinds).items():
        keys_of = [parts[number][shard][0] for number, shard in members]
        values_of = [parts[number][shard][1] for number, shard in members]
        parcel = _packed(keys_of)
        flat = tf.concat([tf.reshape(each, [-1]) for each in values_of], 0)
        with tf.device(device):
            dims = [tables[number].spec.dim for number, _ in members]
            keys_there = _unpacked(parcel, [each.dtype for each in keys_of])
            sizes = [tf.size(part) * dim for part, dim in zip(keys_there, dims, strict=True)]
            rows = tf.split(flat, tf.stack(sizes), num=len(members))
        for (number, shard), part, dim, values in zip(members, keys_there, dims, rows, strict=True):
            one, hyper = tables[number].tables[shard], trained[number][2]
            with tf.device(device):
                values = tf.reshape(values, [-1, dim])
            operation = one.run(library.de_table_apply, part, values, hyper, owner, **attributes)
            done[number].append(operation)
    eager = tf.executing_eagerly()
    return [
        table.updated(gradient.indices, None if eager else tf.group(*done[number]))
        for number, (gradient, table, _) in enumerate(trained)
    ]


def _by_server(
    tables: Sequence[ShardedTable], kinds: Sequence[Hashable]
) -> dict[tuple[str, Hashable], list[_Member]]:
    """Groups shards by server and kind. The data of a group fits into one tensor."""
    groups: dict[tuple[str, Hashable], list[_Member]] = collections.defaultdict(list)
    for number, (table, kind) in enumerate(zip(tables, kinds, strict=True)):
        for shard, device in enumerate(table.spec.devices):
            groups[device, kind].append((number, shard))
    return groups


def _packed(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Packs parts into one int64 tensor: the parts' sizes, then the parts.

    A single part is not packed. It is the same tensor in a lookup and in the lookup's gradient, so
    TensorFlow sends it only once.
    """
    if len(parts) == 1:
        return parts[0]
    numbers = [each for part in parts for each in _numbers(part)]
    sizes = tf.stack([tf.size(each, tf.int64) for each in numbers])
    return tf.concat([sizes, *numbers], 0)


def _unpacked(parcel: tf.Tensor, dtypes: Sequence[tf.DType]) -> list[tf.Tensor]:
    if len(dtypes) == 1:
        return [parcel]
    count = sum(2 if dtype == tf.string else 1 for dtype in dtypes)
    numbers = iter(tf.split(parcel[count:], parcel[:count], num=count))
    return [
        library.de_words_to_strings(words=next(numbers), lengths=next(numbers))
        if dtype == tf.string
        else tf.cast(next(numbers), dtype)
        for dtype in dtypes
    ]


def _numbers(part: tf.Tensor) -> list[tf.Tensor]:
    """Returns keys as int64: integers unchanged, strings as words and lengths."""
    if part.dtype == tf.string:
        return list(library.de_strings_to_words(part))
    return [tf.cast(part, tf.int64)]
