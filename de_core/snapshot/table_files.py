"""Writes each shard of a table to a snapshot file, and reads any number of files."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import file_metadata, library
from de_core.base.paths import remove
from de_core.base.types import TensorLike
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

#: A function of keys [n] that returns bool [n]: true for each key to read.
Predicate = Callable[[tf.Tensor], TensorLike]
#: A predicate's answers for all keys of the files, which are read in steps. Each array belongs to
#: one step and holds one bit per key.
Answers = list[np.ndarray[Any, Any]]

# Metadata of a file with slots: the numbers of the table's own optimizer, by name, as JSON.
_OPTIMIZER = "optimizer"
# Bytes of rows read from a file per step.
_STEP_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class Reading:
    """Options for reading files into a table.

    Attributes:
        merge: True to keep the table's rows that are not in the files.
        slots: True to read optimizer slots too. False to give rows their slots' initial values.
        convert: True to convert values from another floating-point dtype.
        only: Keys to read: None for all; a tensor of keys; a `Predicate`; or its answers, from
            `answered`.
        chain: Name of the series of saves whose next delta continues these files, or "".
        mapped: True to leave the rows in the mapped files until a table is written. Graphs only.
    """

    merge: bool = False
    slots: bool = True
    convert: bool = False
    only: tf.Tensor | Predicate | Answers | None = None
    chain: str = ""
    mapped: bool = False

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes common to all restore ops."""
        return {"slots": self.slots, "convert": self.convert}


def write(
    table: ShardedTable, paths: Sequence[Any], *, save: str = "", **attributes: Any
) -> list[tf.Tensor]:
    """Writes each shard to a file. In eager mode, removes all files if a write fails.

    In eager mode the metadata of each file with slots holds the numbers of the table's own
    optimizer.

    Args:
        table: The table.
        paths: One path per shard; in a graph, scalar string tensors.
        save: A name of this save for the files' metadata, or an empty string.
        **attributes: Attributes of `library.de_table_save`, such as `values_only`.

    Returns:
        One JSON report per file, a scalar string tensor.
    """
    added = ["save", save] if save else []
    beside_slots = table.beside_slots if tf.executing_eagerly() else None
    if beside_slots is not None and not attributes.get("values_only"):
        numbers = {name: each.numpy().tolist() for name, each in beside_slots().items()}
        added += [_OPTIMIZER, json.dumps(numbers)]

    def written(shard: Any, path: Any) -> tf.Tensor:
        metadata = file_metadata([*shard.metadata, *added])
        return shard.run(library.de_table_save, path, metadata=metadata, **attributes)

    if not tf.executing_eagerly():
        return list(map(written, table.tables, paths))
    try:
        return of_each(table, written, paths)
    except BaseException:
        remove(paths)
        raise


def of_each(
    table: ShardedTable, work: Callable[[Any, Any], Any], paths: Sequence[Any]
) -> list[Any]:
    """Calls a function for each shard and its path, in parallel for servers. Eager mode only.

    Returns:
        The results of `work`.
    """
    if not table.is_remote:
        return list(map(work, table.tables, paths))
    # Use one thread per shard, because an eager op in another process blocks its caller.
    with concurrent.futures.ThreadPoolExecutor(len(table.tables)) as servers:
        return list(servers.map(work, table.tables, paths))


def answered(table: ShardedTable, files: Sequence[str], wanted: Predicate) -> Answers:
    """Evaluates a predicate for all keys of files.

    Call it before any table changes, because the predicate may fail.

    Raises:
        ValueError: The predicate does not return a bool for each key.
    """
    return [
        np.packbits(chosen("A predicate of keys", wanted, keys).numpy())
        for _, _, _, keys in _steps(files, table.spec)
    ]


def restore(table: ShardedTable, files: Any, reading: Reading = Reading()) -> Any:
    """Reads files into a table. If an error below is raised, the table is unchanged.

    Args:
        table: The table.
        files: The files' paths, each base followed by its deltas. In a graph, a string vector.
        reading: The options.

    Returns:
        In a graph, an op.

    Raises:
        tf.errors.DataLossError: A file is damaged.
        tf.errors.InvalidArgumentError: A file's table has other dtypes or another dim.
        tf.errors.FailedPreconditionError: A delta does not continue the file before it.
    """
    if callable(reading.only):
        reading = dataclasses.replace(reading, only=answered(table, files, reading.only))
    only = reading.only
    answers = only if isinstance(only, list) else None
    by_partitioner = not table.router.is_hashed and tf.executing_eagerly()
    if answers is not None or (only is None and by_partitioner):
        _restore_chosen(table, list(files), reading, answers)
        return None
    if only is not None:
        parts = table.router.split(tf.reshape(only, [-1]))
        return _restore_keys(table, files, reading, [part[0] for part in parts])
    return _restore_all(table, files, reading)


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


def _restore_all(table: ShardedTable, files: Any, reading: Reading) -> Any:
    tables, count, first = table.tables, table.router.count, table.router.first
    asked = tf.executing_eagerly() and (count > 1 or reading.chain)
    own = _own_files(files, count) if asked else None
    if own is not None and len(tables) > 1:
        verify(files)
    hashed = table.router.is_hashed
    mapped = reading.mapped and hashed and not table.outlives_its_process
    ops = []
    for index, shard in enumerate(tables, first):
        done = shard.run(
            library.de_table_restore,
            files if own is None else own[index],
            replace=not reading.merge,
            shard_index=index if hashed and own is None else 0,
            shard_count=count if hashed and own is None else 1,
            chain=reading.chain if own is not None else "",
            **({"map": True} if mapped else {}),
            **reading.attributes(),
        )
        ops.append(done)
        if not hashed:  # in a graph, a user's partition function assigns keys to shards
            with tf.control_dependencies([done]):
                keys, _ = shard.export()
                strangers = tf.not_equal(table.router.shards(keys), index)
                ops.append(shard.run(library.de_table_erase, tf.boolean_mask(keys, strangers)))
    return None if tf.executing_eagerly() else tf.group(*ops)


def _restore_keys(
    table: ShardedTable, files: Any, reading: Reading, keys: Sequence[tf.Tensor]
) -> Any:
    """Reads the rows of some keys. `keys` has the keys [n] of each shard."""
    ops = [
        shard.run(
            library.de_table_restore_keys,
            files,
            own,
            replace=not reading.merge,
            **reading.attributes(),
        )
        for shard, own in zip(table.tables, keys, strict=True)
    ]
    return None if tf.executing_eagerly() else tf.group(*ops)


def _restore_chosen(
    table: ShardedTable, files: list[str], reading: Reading, answers: Answers | None
) -> None:
    """Reads the rows that a predicate or a partitioner chooses.

    Memory is bounded, except that `merge` collects the chosen keys.
    """
    verify(files)
    wanted = iter(answers or [])
    none = tf.constant([], table.spec.key_dtype)
    if not reading.merge:
        # Restore no key. This checks that the files have the table's dtypes and dim, before any row
        # is read, and empties the table.
        _restore_keys(table, files, reading, [none] * len(table.tables))
    router = table.router
    merged = [[none] for _ in table.tables]
    for path, first, sections, keys in _steps(files, table.spec):
        mask = tf.ones_like(keys, tf.bool)
        if answers is not None:
            mask = tf.constant(np.unpackbits(next(wanted), count=len(keys)).view(bool))
        shards = router.shards(keys) if router.count > 1 else None
        for index, shard in enumerate(table.tables):
            own = mask
            if shards is not None:
                own = tf.logical_and(mask, tf.equal(shards, router.first + index))
            if reading.merge:
                merged[index].append(tf.boolean_mask(keys, own))
                continue
            shard.run(
                library.de_table_restore_part,
                path,
                tf.constant(first, tf.int64),
                tf.constant(sections, tf.int64),
                own,
                **reading.attributes(),
            )
    if reading.merge:
        # Files applied in their order would delete rows that the table keeps, by their tombstones.
        # This op reads only each key's last state.
        _restore_keys(table, files, reading, [tf.concat(parts, 0) for parts in merged])


def _steps(files: Sequence[str], spec: TableSpec) -> Iterator[tuple[str, int, int, tf.Tensor]]:
    """Reads all keys of files in steps, without files before a delta that replaces all rows.

    Yields the path, the first section, the number of sections and their keys.
    """
    applied: list[tuple[str, dict[str, Any]]] = []
    base = 0
    for path in files:
        info = about(path)
        if info["kind"] == "base":
            base = len(applied)
        elif info["replaces"]:
            del applied[base:]
        applied.append((path, info))
    for path, info in applied:
        sections = info["sections"]
        rows = max(info["rows"] + info["tombstones"], 1)
        step = max(1, int(_STEP_BYTES * sections / (rows * (info["row_bytes"] + 16))))
        for first in range(0, sections, step):
            count = min(step, sections - first)
            keys, _, _, _ = library.de_snapshot_read(
                path,
                tf.constant(first, tf.int64),
                tf.constant(count, tf.int64),
                key_dtype=spec.key_dtype,
                value_dtype=tf.as_dtype(info["reads_as"]),  # may differ from the table's dtype
                with_values=False,
            )
            yield path, first, count, keys


def follows(shard: Table, chain: str, identity: str) -> bool:
    """Returns whether a shard's next delta in a series of saves will continue a file."""
    chains = json.loads(shard.run(library.de_table_chains).numpy())["chains"]
    return [each["id"] for each in chains if each["chain"] == chain] == [identity]


def about(path: str, *, verified: bool = False) -> dict[str, Any]:
    """Returns a snapshot file's description, such as `rows`, `id` and `metadata`.

    Args:
        path: The file.
        verified: True to check every byte first.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            return dict(json.loads(library.de_snapshot_info(path, verify=verified).numpy()))
    # In a TensorFlow 1 graph no session exists yet, so use a session of our own.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return dict(json.loads(session.run(library.de_snapshot_info(path, verify=verified))))


def verify(paths: Sequence[str]) -> None:
    """Checks every byte of the files.

    Raises:
        tf.errors.DataLossError: A file is damaged.
        tf.errors.InvalidArgumentError: A file is not a snapshot file.
    """
    for path in paths:
        about(path, verified=True)


def _own_files(files: Sequence[str], count: int) -> list[list[str]] | None:
    """Returns each shard's files, or None if the files' shards divide the keys in another way.

    In `files`, each base is followed by its deltas.
    """
    groups: dict[int, list[str]] = {}
    for path in files:
        metadata = about(path)["metadata"]
        shard, _, shards = str(metadata.get("shard", "")).partition("/")
        if shards != str(count) or metadata.get("partition") != "hash":
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
