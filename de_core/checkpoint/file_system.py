"""Saves a Variable's rows to files that the program names, and loads them again."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import check_integer, received
from de_core.base.directory_lock import alone_in
from de_core.checkpoint import sources, tfra_refusal
from de_core.checkpoint.saved_files import (
    check_own,
    own_entries,
    own_files,
    part_stem,
    parts_of,
    process_of,
)
from de_core.snapshot import table_files
from de_core.snapshot.file import about
from de_core.tables.router import default_partition_fn
from de_core.tables.served_copy import SUFFIX, file_stem
from de_core.tables.sharded import ShardedTable

# Suffix of a new file until all files of its save are complete.
_NEW = ".new-"
# Locks by the path of a save's first file. Threads that save to the same path take turns.
_SAVES: dict[str, threading.Lock] = {}


class FileSystem:
    """Writes rows to files that the program names, and reads them. A base class of `Variable`."""

    _table: ShardedTable

    def save_to_file_system(
        self,
        dirpath: str,
        proc_size: int = 1,
        proc_rank: int = 0,
        file_name_list: Sequence[str] | None = None,
        dirpath_env: str = "TFRA_SAVED_KV",
        append_to_file: bool = False,
        buffer_size: int = 4194304,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Writes each shard of the table to a snapshot file, with values and optimizer slots.

        A new file replaces an old one only when it is complete. A failed save keeps the old file.

        Args:
            dirpath: The directory, on any of TensorFlow's file systems.
            proc_size: Number of processes that save into the directory. Each saves its own rows.
            proc_rank: This process's number, from 0.
            file_name_list: One name per shard, with or without the suffix `.de`; None for
                `<name>_mht_<i>of<n>`.
            dirpath_env: Name of an environment variable that replaces `dirpath` if it is set.
            append_to_file: True to keep the files' rows and append the table's rows as another
                part. Loading takes the later row of a key. The table must have as many shards as
                the files. Eager mode only.
            buffer_size: Ignored, because memory is always bounded.
            name: Ignored.

        Returns:
            None; in a graph, an op. It makes the folder and replaces the files in this Python
            process, and may fail if it runs twice at the same time.

        Raises:
            TypeError: `proc_size` or `proc_rank` is not an integer, or `file_name_list` is not a
                list of strings.
            ValueError: `proc_rank`, `file_name_list` or the number of shards does not fit, or files
                of these names belong to another Variable. In a graph the latter is a
                `tf.errors.InvalidArgumentError`.
            tf.errors.OpError: A file cannot be written.
        """
        del name
        _check_processes(proc_size, proc_rank, buffer_size)
        if proc_size == 1:
            self._table.router.require_whole(
                "A save with `proc_size=1`", "Pass the number of workers, and `proc_rank`."
            )
        folder = os.environ.get(dirpath_env) or os.fspath(dirpath)
        shards = self._table.tables
        _check_names(file_name_list, len(shards))
        ending = f"_rank{proc_rank}_size{proc_size}" if proc_size > 1 else ""
        usual = [file_stem(shard.name) + ending for shard in shards]
        names = usual if file_name_list is None else file_name_list
        targets = [paths.join(folder, each.removesuffix(SUFFIX)) + SUFFIX for each in names]
        if append_to_file:
            if not tf.executing_eagerly():
                raise ValueError(
                    "`append_to_file` must be False in a graph. "
                    + received(append_to_file=append_to_file)
                    + " Save in eager mode."
                )
            if file_name_list is None:
                check_own(self._table.name, folder)
                _check_as_many_shards(self._table, folder, (proc_size, proc_rank))
            targets = [
                f"{part_stem(path)}{len(parts_of(path)):06}{SUFFIX}"
                if tf.io.gfile.exists(path)
                else path
                for path in targets
            ]

        def begin() -> list[str]:
            tf.io.gfile.makedirs(folder)
            if file_name_list is None:
                check_own(self._table.name, folder)
            for path in targets:  # remove what a killed process or a graph's failed run left
                paths.remove(tf.io.gfile.glob(f"{paths.literal(path)}{_NEW}*"))
            return [f"{path}{_NEW}{secrets.token_hex(8)}" for path in targets]

        def replace(written: Iterable[str]) -> None:
            with alone_in(paths.folder_of(targets[0]) or "."):
                for path, target in zip(written, targets, strict=True):
                    tf.io.gfile.rename(path, target, overwrite=True)
            paths.sync(paths.folder_of(targets[0]))
            if append_to_file:
                return
            # Delete parts of replaced files, and files of saves with another number of shards.
            kept = {part for path in targets for part in parts_of(path)}
            old = [part for path in targets for part in parts_of(path, of_any_id=True)]
            if file_name_list is None:
                for match in own_entries(self._table.name, folder):
                    if process_of(match) == (proc_size, proc_rank):
                        old.append(paths.join(folder, match[0]))
            paths.remove([path for path in old if path not in kept])

        if not tf.executing_eagerly():
            return _write_when_run(self._table, begin, replace)
        with _SAVES.setdefault(targets[0], threading.Lock()):
            written = begin()
            try:
                table_files.write(self._table, written, metadata=["save", secrets.token_hex(8)])
                replace(written)
            except BaseException:
                paths.remove(written)
                raise
        return None

    def load_from_file_system(
        self,
        dirpath: str,
        proc_size: int = 1,
        proc_rank: int = 0,
        file_name_list: Sequence[str] | None = None,
        dirpath_env: str = "TFRA_SAVED_KV",
        load_entire_dir: bool = False,
        buffer_size: int = 4194304,
        name: str | None = None,
        *,
        merge: bool = False,
    ) -> Any:
        """Reads files that `save_to_file_system` wrote, for any number of shards and processes.

        A failed call changes nothing.

        Args:
            dirpath: The directory.
            proc_size: Number of processes that load. If as many saved, each process reads its own
                files. Otherwise each reads all files of the newest save and keeps the keys that
                `default_partition_fn` assigns to it.
            proc_rank: This process's number, from 0.
            file_name_list: Names of the files; None for the names derived from the Variable's name.
            dirpath_env: Name of an environment variable that replaces `dirpath` if it is set.
            load_entire_dir: Read every snapshot file of the directory, whatever its name. If two
                files have a row for a key, the file whose name sorts last wins; a part that was
                appended counts as directly after its file.
            buffer_size: Ignored.
            name: Ignored.
            merge: True to keep rows that are not in the files.

        Returns:
            None; in a graph, an op. It chooses the files when it runs, in this Python process.

        Raises:
            TypeError: `proc_size` or `proc_rank` is not an integer, or `file_name_list` is not a
                list of strings.
            ValueError: `proc_rank` does not fit, `file_name_list` is empty, or the files belong to
                another Variable. In a graph the latter is a `tf.errors.InvalidArgumentError`.
            tf.errors.NotFoundError: There are no such files, or some of them are missing. In a
                graph it is a `tf.errors.UnknownError` with the same text.
            tf.errors.DataLossError: A file is damaged. In a graph it may be a
                `tf.errors.UnknownError` too.
            tf.errors.InvalidArgumentError: A file's table has other dtypes or another dim.
        """
        del name
        _check_processes(proc_size, proc_rank, buffer_size)
        _check_names(file_name_list)
        folder = os.environ.get(dirpath_env) or os.fspath(dirpath)
        table = self._table

        def chosen() -> tuple[list[str], table_files.Predicate | None]:
            """Returns the files to read, and the keys to read from them."""
            if load_entire_dir:
                found = tf.io.gfile.glob(paths.join(paths.literal(folder), f"*{SUFFIX}"))
                _check_found(found, folder, f"*{SUFFIX}")
                return sources.in_order(found), None
            if file_name_list is not None:
                named = (parts_of(paths.join(folder, each)) for each in file_name_list)
                return [part for parts in named for part in parts], None
            files, saved_by = own_files(table.name, folder, proc_size, proc_rank)
            _check_found(files, folder, f"{file_stem(table.name)}_mht_*{SUFFIX}")
            if saved_by == proc_size or proc_size == 1:
                return files, None
            return files, lambda keys: default_partition_fn(keys, proc_size) == proc_rank

        if not tf.executing_eagerly():
            return _restore_when_run(table, chosen, merge, by_key=proc_size > 1)
        files, only = chosen()
        table_files.restore(table, files, merge=merge, only=only)
        if not merge:
            table_files.restore_beside_slots(table, files)
        return None


def _restore_when_run(
    table: ShardedTable,
    chosen: Callable[[], tuple[list[str], table_files.Predicate | None]],
    merge: bool,
    by_key: bool,
) -> Any:
    """Returns an op of a graph that reads the files that `chosen` returns when the op runs.

    Args:
        table: The table.
        chosen: Returns the files, and the keys to read from them.
        merge: True to keep rows that are not in the files.
        by_key: True if `chosen` may choose keys. Then the keys to read are in memory at once.
    """

    def choice() -> list[Any]:
        files, only = chosen()
        return [files, *(table_files.keys_of_shards(table, files, only) if by_key else [])]

    keys = [table.spec.key_dtype] * len(table.tables) if by_key else []
    with tf.device(None):  # the scope's device may be in another process
        files, *only = tf.py_function(choice, [], [tf.string, *keys])
    for each in (files, *only):
        each.set_shape([None])
    return table_files.restore(table, files, merge=merge, only=only if by_key else None)


def _write_when_run(
    table: ShardedTable, begin: Callable[[], list[str]], replace: Callable[[Iterable[str]], None]
) -> tf.Operation:
    """Returns an op of a graph that writes the shards to the paths that `begin` returns.

    Then the op calls `replace` with these paths.
    """
    with tf.device(None):  # the scope's device may be in another process
        [written] = tf.py_function(lambda: [begin()], [], [tf.string])
    # An attribute of an op is constant. So all runs of these ops have the same tag.
    metadata = ["save", secrets.token_hex(8)]
    done = table_files.write(table, tf.unstack(written, len(table.tables)), metadata=metadata)
    with tf.device(None), tf.control_dependencies(done):
        return tf.group(tf.py_function(lambda new: replace(new.numpy()), [written], []))


def _check_processes(proc_size: int, proc_rank: int, buffer_size: int) -> None:
    check_integer("proc_size", proc_size, 1)
    check_integer("proc_rank", proc_rank, 0, proc_size - 1)
    check_integer("buffer_size", buffer_size, 1)


def _check_names(names: Sequence[str] | None, shards: int | None = None) -> None:
    """Raises unless `names` is None or a list of names: a distinct one for each of `shards`."""
    if names is None:
        return
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    is_list = is_list and all(isinstance(each, str) for each in names)
    distinct = {each.removesuffix(SUFFIX) for each in names} if is_list else ()
    if not is_list or not names or (shards and not len(names) == len(distinct) == shards):
        wanted = f", a distinct one for each of {shards} shards" if shards else ""
        raise (ValueError if is_list else TypeError)(
            f"`file_name_list` must be a list of file names{wanted}. "
            + received(file_name_list=names)
        )


def _check_found(files: list[str], folder: str, pattern: str) -> None:
    if not files:
        raise tf.errors.NotFoundError(
            None,
            None,
            "The directory must contain the files that save_to_file_system wrote. "
            f"Received: no {pattern!r} in {folder!r}. "
            f"If tfra wrote its files: {tfra_refusal.REMEDY}.",
        )


def _check_as_many_shards(table: ShardedTable, folder: str, process: tuple[int, int]) -> None:
    """Raises if this process's files are of another number of shards: a load would skip them."""
    count = table.router.count
    own = [
        match
        for match in own_entries(table.name, folder)
        if not match["part"] and process_of(match) == process
    ]
    if not own:
        return
    newest = max(own, key=lambda file: int(about(paths.join(folder, file[0]))["created_micros"]))
    if int(newest["n"]) != count:
        raise ValueError(
            "With `append_to_file` a table must have as many shards as the files. Received: "
            f"{count} shards for {paths.join(folder, newest[0])!r} of {newest['n']}. "
            "Load the files first, then save without `append_to_file`."
        )
