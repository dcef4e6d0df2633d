"""Writes each shard of a table to a snapshot file, and reads any number of files."""

from __future__ import annotations

import concurrent.futures
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import file_metadata, library
from de_core.base.paths import remove
from de_core.base.types import TensorLike
from de_core.snapshot.file import SnapshotFile, about, verify
from de_core.tables.sharded import ShardedTable
from de_core.tables.table import Table

#: A function of keys [n] that returns bool [n]: true for each key to read.
Predicate = Callable[[tf.Tensor], TensorLike]
# Metadata of a file with slots: the numbers of the table's own optimizer, by name, as JSON.
_OPTIMIZER = "optimizer"


def write(
    table: ShardedTable,
    paths: Sequence[Any],
    *,
    metadata: Sequence[str | bytes] = (),
    where: Predicate | None = None,
    **attributes: Any,
) -> list[Any]:
    """Writes each shard to a file. In eager mode, removes all files if a write fails.

    In eager mode the metadata of each file with slots holds the numbers of the table's own
    optimizer.

    Args:
        table: The table.
        paths: One path per shard; in a graph, scalar string tensors.
        metadata: Alternating keys and values for the files' metadata, beside the table's own.
        where: Chooses the keys to write; None for all. Eager mode only.
        **attributes: Attributes of `library.de_table_save`, such as `values_only`.

    Returns:
        The report of each file: a dict, or in a graph its JSON, a scalar string tensor.
    """
    added, eager = [*metadata], tf.executing_eagerly()
    if eager and table.beside_slots is not None and not attributes.get("values_only"):
        numbers = {name: each.numpy().tolist() for name, each in table.beside_slots().items()}
        added += [_OPTIMIZER, json.dumps(numbers)]

    def written(shard: Any, path: Any) -> Any:
        own = {**attributes, "metadata": file_metadata([*shard.metadata, *added])}
        if where is None:
            report = shard.run(library.de_table_save, path, **own)
        else:
            kept = [tf.zeros([0], table.spec.key_dtype)]
            for keys, _ in shard.export_batches():
                kept.append(tf.boolean_mask(keys, chosen("`where`", where, keys)))
            report = shard.run(library.de_table_save_keys, path, tf.concat(kept, 0), **own)
        return dict(json.loads(report.numpy())) if eager else report

    if not eager:
        return list(map(written, table.tables, paths))
    try:
        if not table.is_remote:
            return list(map(written, table.tables, paths))
        # Use one thread per shard, because an eager op in another process blocks its caller.
        with concurrent.futures.ThreadPoolExecutor(len(table.tables)) as servers:
            return list(servers.map(written, table.tables, paths))
    except BaseException:
        remove(paths)
        raise


def keys_of_shards(
    table: ShardedTable, files: Sequence[str], wanted: Predicate | None
) -> list[tf.Tensor]:
    """Returns the keys [n] that each shard reads from files: those that a predicate chooses.

    None chooses all keys. Call it before any table changes, because the predicate may fail. The
    chosen keys of all files are in memory at once.

    Raises:
        ValueError: The predicate does not return a bool for each key.
    """
    router, dtype = table.router, table.spec.key_dtype
    found = [[tf.constant([], dtype)] for _ in table.tables]
    for path in files:
        for keys in SnapshotFile(path).keys(dtype):
            if wanted is not None:
                keys = tf.boolean_mask(keys, chosen("A predicate of keys", wanted, keys))
            shards = router.shards(keys) if router.count > 1 else tf.zeros_like(keys, tf.int32)
            for number, own in enumerate(found, router.first):
                own.append(tf.boolean_mask(keys, tf.equal(shards, number)))
    return [tf.concat(found.pop(0), 0) for _ in table.tables]


def restore(
    table: ShardedTable,
    files: Any,
    *,
    merge: bool = False,
    slots: bool = True,
    convert: bool = False,
    only: tf.Tensor | Predicate | list[tf.Tensor] | None = None,
    chain: str = "",
) -> Any:
    """Reads files into a table. If an error below is raised, the table is unchanged.

    Args:
        table: The table.
        files: The files' paths, each base followed by its deltas. In a graph, a string vector.
        merge: True to keep the table's rows that are not in the files.
        slots: True to read optimizer slots too. False to give rows their slots' initial values.
        convert: True to convert values from another floating-point dtype.
        only: Keys to read: None for all; a tensor of keys; a `Predicate`; or the keys of each
            shard, from `keys_of_shards`.
        chain: Name of the series of saves whose next delta continues these files, or "".

    Returns:
        In a graph, an op.

    Raises:
        tf.errors.DataLossError: A file is damaged.
        tf.errors.InvalidArgumentError: A file's table has other dtypes or another dim.
        tf.errors.FailedPreconditionError: A delta does not continue the file before it.
    """
    router, eager = table.router, tf.executing_eagerly()
    options: dict[str, Any] = {"replace": not merge, "slots": slots, "convert": convert}
    if callable(only) or (only is None and eager and not router.is_hashed):
        only = keys_of_shards(table, files, only)
    if only is not None:
        if not isinstance(only, list):
            only = [part[0] for part in router.split(tf.reshape(only, [-1]))]
        done = [
            shard.run(library.de_table_restore_keys, files, keys, **options)
            for shard, keys in zip(table.tables, only, strict=True)
        ]
        return None if eager else tf.group(*done)
    own = _own_files(table, files) if eager and (router.count > 1 or chain) else None
    if own is not None and len(table.tables) > 1:
        verify(files)
    if own is not None:
        options["chain"] = chain
    done = []
    for number, shard in enumerate(table.tables, router.first):
        if own is None and router.is_hashed:
            options |= {"shard_index": number, "shard_count": router.count}
        own_files = files if own is None else own[number]
        done.append(shard.run(library.de_table_restore, own_files, **options))
        if not router.is_hashed:  # in a graph, a user's partition function assigns keys to shards
            with tf.control_dependencies(done[-1:]):
                keys, _ = shard.export()
                strangers = tf.not_equal(router.shards(keys), number)
                done.append(shard.run(library.de_table_erase, tf.boolean_mask(keys, strangers)))
    return None if eager else tf.group(*done)


def restore_beside_slots(table: ShardedTable, files: Sequence[str]) -> None:
    """Reads the numbers of a table's own optimizer from the last file.

    Files without them change nothing, nor do numbers of another shape.
    """
    if table.beside_slots is None or not files:
        return
    numbers = json.loads(about(files[-1])["metadata"].get(_OPTIMIZER, "{}"))
    for name, variable in table.beside_slots().items():
        if name in numbers and np.shape(numbers[name]) == tuple(variable.shape):
            variable.assign(numbers[name])


def follow(shards: Iterable[Table], chain: str, identities: Iterable[str]) -> bool:
    """Returns whether each shard's next delta in a series of saves continues its file, by id."""
    for shard, identity in zip(shards, identities, strict=True):
        chains = json.loads(shard.run(library.de_table_chains).numpy())["chains"]
        if {each["chain"]: each["id"] for each in chains}.get(chain) != identity:
            return False
    return True


def _own_files(table: ShardedTable, files: Sequence[str]) -> list[list[str]] | None:
    """Returns each shard's files, or None if the files' shards divide the keys in another way.

    Returns None also if int64 keys must be checked for an int32 table: then the first shard reads
    all files, so no shard changes before all keys are checked. In `files`, each base is followed by
    its deltas.
    """
    count, needs_int32 = table.router.count, table.spec.key_dtype == tf.int32
    groups: dict[int, list[str]] = {}
    for path in files:
        metadata = about(path)["metadata"]
        shard, _, shards = str(metadata.get("shard", "")).partition("/")
        if shards != str(count) or metadata.get("partition") != "hash":
            return None
        if needs_int32 and metadata.get("keys") != "int32":
            return None
        groups.setdefault(int(shard), []).append(path)
    return [groups[index] for index in range(count)] if len(groups) == count else None


def chosen(what: str, wanted: Predicate, keys: tf.Tensor) -> tf.Tensor:
    """Returns a predicate's answers, a bool for each key. The error for others names `what`."""
    mask = tf.convert_to_tensor(wanted(keys))
    if mask.dtype != tf.bool or mask.shape != keys.shape:
        raise ValueError(
            f"{what} must return a bool for each key. "
            + received(dtype=mask.dtype.name, shape=tuple(mask.shape), keys=tuple(keys.shape))
        )
    return mask
