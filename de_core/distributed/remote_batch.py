"""Reads and updates several tables on the same servers with one request to each server.

TensorFlow sends one request per tensor between two processes. So this module packs the keys of all
tables on a server into one tensor and unpacks them there. It packs the answers too.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable, TableStep
from de_core.tables.spec import arithmetic_dtype

# A table's number in the batch, and a shard's number in the table.
_Member = tuple[int, int]


def find(tables: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads rows of several tables on servers; see `request_groups`."""
    places, parts = zip(
        *(each.router.divided(part) for each, part in zip(tables, keys, strict=True)), strict=True
    )
    found: dict[_Member, tf.Tensor] = {}
    for (device, _), members in _by_server(tables).items():
        asked = [parts[number][shard] for number, shard in members]
        parcel = _packed(asked)
        with tf.device(device):
            answers = [
                tables[number].tables[shard].find(part)[0]
                for (number, shard), part in zip(
                    members, _unpacked(parcel, [part.dtype for part in asked]), strict=True
                )
            ]
            answer = answers[0]
            if len(answers) > 1:
                answer = tf.concat([tf.reshape(each, [-1]) for each in answers], 0)
        dims = [tables[number].spec.dim for number, _ in members]
        rows = _divided(answer, asked, dims)
        found.update(zip(members, rows, strict=True))
    return [
        tf.dynamic_stitch(
            places[number], [found[number, shard] for shard in range(each.router.count)]
        )
        for number, each in enumerate(tables)
    ]


def apply(steps: Sequence[TableStep]) -> list[tf.Operation | None]:
    """Runs optimizer steps in several tables on servers; see `request_groups`."""
    tables = [step.table for step in steps]
    parts: list[list[list[tf.Tensor]]] = []
    for step in steps:
        parts.append(step.table.router.split(*summed_rows(step.keys, step.gradient.values)))
    done: dict[int, list[tf.Operation | None]] = collections.defaultdict(list)
    for (device, dtype), members in _by_server(tables).items():
        keys_of = [parts[number][shard][0] for number, shard in members]
        values_of = [parts[number][shard][1] for number, shard in members]
        settings = {id(each.settings): each.settings for each in (steps[n] for n, _ in members)}
        parcel = _packed(keys_of)
        # The settings travel as values, because a tensor more would be a request more.
        real = arithmetic_dtype(dtype)
        vectors = [_as_values(each, real) for each in settings.values()]
        flat = tf.concat([*vectors, *(tf.reshape(each, [-1]) for each in values_of)], 0)
        with tf.device(device):
            keys_there = _unpacked(parcel, [each.dtype for each in keys_of])
            of_step: dict[int, tf.Tensor] = {}
            for name, vector in zip(settings, vectors, strict=True):
                length = vector.shape[0]
                of_step[name], flat = _as_settings(flat[:length], real), flat[length:]
            dims = [tables[number].spec.dim for number, _ in members]
            rows = _divided(flat, keys_there, dims)
            for (number, shard), part, values in zip(members, keys_there, rows, strict=True):
                step = steps[number]
                own = of_step[id(step.settings)]
                done[number].append(step.run_in_shard(shard, part, values, own))
    eager = tf.executing_eagerly()
    return [
        step.table.updated(step.gradient.indices, None if eager else tf.group(*done[number]))
        for number, step in enumerate(steps)
    ]


def _by_server(tables: Sequence[ShardedTable]) -> dict[tuple[str, tf.DType], list[_Member]]:
    """Groups shards by server and value dtype. The values of a group fit into one tensor.

    The members are in the order of the tables' names. So a lookup and its gradient pack the same
    keys in the same order, and TensorFlow sends them once.
    """
    groups: dict[tuple[str, tf.DType], list[_Member]] = collections.defaultdict(list)
    for number, table in sorted(enumerate(tables), key=lambda pair: pair[1].name):
        for shard, device in enumerate(table.spec.devices):
            groups[device, table.spec.value_dtype].append((number, shard))
    return groups


def _divided(flat: tf.Tensor, keys: Sequence[tf.Tensor], dims: Sequence[int]) -> list[tf.Tensor]:
    """Returns the rows of several shards from one tensor."""
    parts = [flat]
    if len(keys) > 1:  # `tf.split` would send the number of keys, too
        sizes = [tf.size(part) * dim for part, dim in zip(keys, dims, strict=True)]
        parts = tf.split(flat, tf.stack(sizes), num=len(keys))
    return [tf.reshape(part, [-1, dim]) for part, dim in zip(parts, dims, strict=True)]


def _as_values(settings: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns the bits of settings, float64 [k], as values of another dtype, [m]."""
    if dtype == tf.float64:
        return settings
    return tf.reshape(tf.bitcast(settings, dtype), [settings.shape[0] * (8 // dtype.size)])


def _as_settings(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Reverses `_as_values`."""
    if dtype == tf.float64:
        return values
    return tf.bitcast(tf.reshape(values, [-1, 8 // dtype.size]), tf.float64)


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
