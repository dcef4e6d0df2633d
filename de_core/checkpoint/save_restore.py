"""Saves and restores tables alone: `de.checkpoint.save` and `de.checkpoint.restore`."""

from __future__ import annotations

import os
import secrets
from typing import Any

import tensorflow as tf

from de_core.base import directory_lock, paths
from de_core.base.checks import received, require_eager
from de_core.base.types import Target, TensorLike
from de_core.checkpoint import manifest
from de_core.checkpoint.sources import tables_in
from de_core.checkpoint.targets import tables_of
from de_core.snapshot import table_files
from de_core.snapshot.file import SnapshotFile, about
from de_core.snapshot.table_files import Predicate
from de_core.tables.keys_and_values import converted
from de_core.tables.served_copy import SUFFIX, file_stem
from de_core.tables.sharded import ShardedTable


def save(
    target: Target, path: str | os.PathLike[str], *, slots: bool = True, consistent: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Writes the tables of a target into a directory. Training may continue meanwhile.

    A checkpoint in the directory is replaced atomically: a failed or killed save leaves it whole.
    Workers of a MultiWorkerMirroredStrategy must call this together, with a directory that all of
    them can access. Each writes its own rows. To save the rest of a model too, see `Manager` and
    `tf.train.Checkpoint`.

    Args:
        target: A Variable, a list or dict of them, or a module, layer or model.
        path: The directory, on any of TensorFlow's file systems.
        slots: True to write optimizer slots, and the count of steps and the rate of a table's own
            optimizer.
        consistent: True to save all rows of a table as they are when the table's save begins. False
            to save each row as it is at some moment during the save. A row's value and slots are
            always of the same moment.

    Returns:
        For each table name, the reports of its files: rows; bytes; seconds; `rested_seconds`, the
        time that the save slept to leave cores to others; and `longest_hold_seconds`, the longest
        time that a writer waited.

    Raises:
        tf.errors.OpError: A file cannot be written, for example `ResourceExhaustedError` if the
            disk is full. Files already written are removed.
        tf.errors.AbortedError: Two other saves into the directory have finished meanwhile.
        ValueError: `target` has no tables.

    Example:
    >>> import tempfile, de_core as de
    >>> users = de.Variable(dim=2, name="users")
    >>> users.upsert([7], [[1.0, 2.0]])
    >>> directory = tempfile.mkdtemp()
    >>> reports = save(users, directory)
    >>> users.clear()
    >>> restore(users, directory)
    {'users': 1}
    """
    require_eager("de.checkpoint.save", "In a graph, use tf.compat.v1.train.Saver.")
    folder = os.fspath(path) or "."
    tables = tables_of(target)
    alone = [name for name, table in tables.items() if not table.router.is_spread]
    if 0 < len(alone) < len(tables):
        divided = [name for name in tables if name not in alone]
        raise ValueError(
            "Either all tables of a checkpoint must be divided among workers, or none. "
            f"{received(not_divided=alone, divided=divided)} Save the two kinds separately."
        )
    router = next(iter(tables.values())).router
    tag = router.in_each_worker(lambda: secrets.token_hex(4))[0]
    own: manifest.Tables = {}
    for number, (name, table) in enumerate(tables.items(), 1):
        first, count = table.router.first, table.router.count
        end = f"of{count}-{number}{tag}{SUFFIX}"
        shards = range(first + 1, first + len(table.tables) + 1)
        own[name] = [{"file": f"{file_stem(name)}-{shard}{end}"} for shard in shards]

    def write_files() -> manifest.Tables:
        tf.io.gfile.makedirs(folder)
        if router.first == 0:
            manifest.write_note(folder, tag)
        for name, table in tables.items():
            names = [paths.join(folder, file["file"]) for file in own[name]]
            reports = table_files.write(table, names, values_only=not slots, consistent=consistent)
            for file, report in zip(own[name], reports, strict=True):
                file.update(report)
        return own

    def replace() -> None:
        if router.first == 0:
            new = manifest.names_of(everyones)
            with directory_lock.alone_in(folder):
                for name in new:
                    if not tf.io.gfile.exists(paths.join(folder, name)):
                        raise _replaced(folder, name)
                old = manifest.outdated(folder, tag)
                manifest.write(folder, everyones)
                paths.remove(paths.join(folder, name) for name in old - new)

    try:
        parts = router.in_each_worker(write_files)
        everyones = {name: [file for part in parts for file in part[name]] for name in tables}
        router.in_each_worker(replace)
    except BaseException as error:
        note = manifest.note_name(tag)
        is_noted = tf.io.gfile.exists(paths.join(folder, note))
        names = manifest.names_of(own)
        # Remove the files, unless they have become the checkpoint.
        if names.isdisjoint(manifest.file_names(folder)):
            names |= {note} if router.first == 0 else set()
            paths.remove(paths.join(folder, name) for name in names)
        # Another save may have finished, and have deleted this save's note and files.
        if isinstance(error, tf.errors.NotFoundError) and not is_noted:
            raise _replaced(folder, note) from error
        raise
    return everyones


def restore(
    target: Target,
    path: str | os.PathLike[str],
    *,
    merge: bool = False,
    slots: bool = True,
    only: TensorLike | Predicate | None = None,
    convert: bool = False,
) -> dict[str, int]:
    """Reads tables from a checkpoint. The tables may now have another number of devices.

    A failed call changes nothing, except if memory or a tier's disk becomes full. A table in a
    storage is emptied before its rows are written. If the call fails or is killed then, restore it
    again.

    Args:
        target: A Variable, a list or dict of them, or a module, layer or model. The checkpoint must
            contain each table under its name. If both have only one table, the names may differ.
        path: A directory that `save` wrote; the prefix of a checkpoint of TensorFlow or of a
            `Manager`; a directory of several of these, for the newest complete one; a version that
            `de.export` wrote; a snapshot file; or a directory of `Variable.save_to_file_system`,
            for each Variable's newest save.
        merge: True to keep rows that are not in the checkpoint. False to remove them; then a key
            without a row gets the initial row of the saved table.
        slots: True to read optimizer slots, and without `merge` also the count of steps and the
            rate of a table's own optimizer. False to give rows their slots' initial values.
        only: The rows to read: None for all; keys of any shape; or a function of keys [n] that
            returns bool [n].
        convert: True to convert values from another floating-point dtype.

    Returns:
        The number of rows after the call, by table name.

    Raises:
        ValueError: A table is not in the checkpoint.
        tf.errors.NotFoundError: There is no checkpoint, or a file of it is missing.
        tf.errors.DataLossError: A file is damaged, or belongs to another checkpoint.
        tf.errors.InvalidArgumentError: A file's table has other dtypes or another dim, or a key
            that an int32 table cannot hold.
        tf.errors.ResourceExhaustedError: Memory or a tier's disk is full. The part of the table on
            that device is empty then, so that no part of the rows passes for the whole table. With
            `merge`, rows that were read stay.
        TypeError: `path` is None, or the keys in `only` have another dtype.

    Example:
    >>> import tempfile, de_core as de
    >>> users = de.Variable(dim=1, name="users")
    >>> users.upsert([1, 2], [[1.0], [2.0]])
    >>> directory = tempfile.mkdtemp()
    >>> reports = save(users, directory)
    >>> few = de.Variable(dim=1, name="users", devices=["/CPU:0", "/CPU:0"])
    >>> restore(few, directory, only=lambda keys: keys > 1)
    {'users': 1}
    """
    require_eager("de.checkpoint.restore", "In a graph, use tf.compat.v1.train.Saver.")
    saved = tables_in(path)
    tables = tables_of(target)
    if len(tables) == len(saved) == 1:
        saved = dict(zip(tables, saved.values(), strict=True))
    missing = [name for name in tables if name not in saved]
    if missing:
        raise ValueError(
            f"Every table of the target must be in the checkpoint. Received: {missing}, while "
            f"{os.fspath(path)!r} contains {sorted(saved)}. If the names differ, pass a dict from "
            "the checkpoint's names to Variables."
        )
    pairs = [(table, saved[name]) for name, table in tables.items()]
    restore_tables(pairs, only, merge=merge, slots=slots, convert=convert)
    return {name: int(table.size()) for name, table in tables.items()}


def restore_tables(
    pairs: list[tuple[ShardedTable, list[str]]],
    only: TensorLike | Predicate | None = None,
    *,
    merge: bool,
    slots: bool,
    convert: bool,
) -> None:
    """Reads files into several tables. If a file does not fit or is damaged, no table changes."""
    if len(pairs) > 1:
        for table, files in pairs:
            for path in files:
                _check_fits(table, path, about(path, verified=True), convert)
    keys: list[Any] = []
    for table, files in pairs:  # evaluate all predicates before the first table changes
        if callable(only):
            keys.append(table_files.keys_of_shards(table, files, only))
        else:
            spec, name = table.spec, table.name
            keys.append(None if only is None else converted("only", only, spec.key_dtype, name))
    for (table, files), own in zip(pairs, keys, strict=True):
        table_files.restore(table, files, merge=merge, slots=slots, convert=convert, only=own)
        if slots and not merge:
            table_files.restore_beside_slots(table, files)


def _check_fits(table: ShardedTable, path: str, info: dict[str, Any], convert: bool) -> None:
    spec = table.spec
    key_dtype = "string" if spec.key_dtype == tf.string else "int64"
    wanted = {"key_dtype": key_dtype, "reads_as": spec.value_dtype.name, "dim": spec.dim}
    found = {name: info[name] for name in wanted}
    both = (spec.value_dtype, tf.as_dtype(found["reads_as"]))
    if convert and all(dtype.is_floating for dtype in both):
        found["reads_as"] = wanted["reads_as"]
    if found != wanted:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"{path}: the file must have the dtypes and dim of table {table.name!r}, {wanted}. "
            f"Received: {found}.",
        )
    if spec.key_dtype == tf.int32 and info["metadata"].get("keys") != "int32":
        for _ in SnapshotFile(path).keys(tf.int32):  # raises for a key outside int32
            pass


def _replaced(folder: str, missing: str) -> tf.errors.AbortedError:
    return tf.errors.AbortedError(
        None,
        None,
        "Only one save at a time may write into a directory. Other saves have replaced this one. "
        f"Received: {folder!r} without {missing}.",
    )
