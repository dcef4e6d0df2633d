"""The tables of one Variable in snapshot files: written one a table, read from any number."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import TableSpec

#: `f(keys [n])` returning whether each key is wanted, bool [n].
Predicate = Callable[[tf.Tensor], Any]
#: What a predicate says of the keys of files, a step after the other: a bit a key.
Answers = list[np.ndarray[Any, Any]]

# A file is walked this many bytes of rows at a time.
_STEP_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files are read into a table that may have rows.

    Attributes:
        merge: Keep the rows that are not in the files.
        slots: Read optimizer slots too; else rows get their slots' initial values.
        convert: Take values of another floating-point dtype.
        only: None for all rows; a tensor of keys; a `Predicate`; or what it has `answered`.
        chain: Series of saves that goes on from these files.
        mapped: Leave the rows in the files, mapped, until a table is written; in graphs.
    """

    merge: bool = False
    slots: bool = True
    convert: bool = False
    only: tf.Tensor | Predicate | Answers | None = None
    chain: str = ""
    mapped: bool = False

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes that all restoring ops share."""
        return {"slots": self.slots, "convert": self.convert}


def write(
    store: ShardedTable, paths: Sequence[Any], *, save: str = "", **attributes: Any
) -> list[tf.Tensor]:
    """Writes each table to a file; in eager mode none is left if one fails.

    Args:
        store: The tables.
        paths: One a table; in a graph scalar string tensors.
        save: A name of this save for the files' metadata, or nothing.
        **attributes: Of `library.de_table_save`, such as `values_only`.

    Returns:
        For each file a scalar string, a JSON report.
    """

    def written(table: Any, path: Any) -> tf.Tensor:
        metadata = [*table.metadata, *(["save", save] if save else [])]
        return table.run(library.de_table_save, path, metadata=metadata, **attributes)

    if not tf.executing_eagerly():
        return list(map(written, store.tables, paths))
    with _removed_on_error(paths[: len(store.tables)]):
        return of_each(store, written, paths)


def of_each(
    store: ShardedTable, work: Callable[[Any, Any], Any], paths: Sequence[Any]
) -> list[Any]:
    """Does something with each table and its path, in eager mode; servers do it at the same time.

    Args:
        store: The tables.
        work: `f(table, path)`.
        paths: One a table.

    Returns:
        What `work` returned.
    """
    if not store.is_remote:
        return list(map(work, store.tables, paths))
    # An eager op in another process is waited for.
    with concurrent.futures.ThreadPoolExecutor(len(store.tables)) as servers:
        return list(servers.map(work, store.tables, paths))


def answered(store: ShardedTable, files: Sequence[str], wanted: Predicate) -> Answers:
    """Asks a predicate for all keys of files, before anything changes: it may fail.

    Args:
        store: The tables that the files are for.
        files: Paths.
        wanted: The predicate.

    Raises:
        ValueError: It does not return a bool for each key.
    """
    return [
        np.packbits(_chosen(wanted, keys).numpy())
        for path in files
        for _, _, keys in keys_in_steps(path, store.spec)
    ]


def restore(store: ShardedTable, files: Any, reading: Reading = Reading()) -> Any:
    """Reads files into the tables.

    Args:
        store: The tables.
        files: Paths; each base is followed by its deltas. In a graph a string vector.
        reading: How.

    Returns:
        In a graph, an op.

    Raises:
        tf.errors.DataLossError: A file is damaged. That and the following change nothing.
        tf.errors.InvalidArgumentError: A file is of a table of other dtypes or another dim.
        tf.errors.FailedPreconditionError: A delta does not follow the file before it.
    """
    if callable(reading.only):
        reading = dataclasses.replace(reading, only=answered(store, files, reading.only))
    if isinstance(reading.only, list):
        _restore_chosen(store, list(files), reading, reading.only)
        return None
    if not store.router.is_hashed and tf.executing_eagerly():
        if reading.only is None:
            _restore_chosen(store, list(files), reading, None)
        else:
            _restore_keys(store, files, reading, reading.only)
        return None
    if reading.only is not None:
        return _restore_keys(store, files, reading, reading.only)
    return _restore_all(store, files, reading)


def _restore_all(store: ShardedTable, files: Any, reading: Reading) -> Any:
    tables, count, first = store.tables, store.router.count, store.router.first
    asked = tf.executing_eagerly() and (count > 1 or reading.chain)
    own = _own_files(files, count) if asked else None
    if own is not None and len(tables) > 1:
        verify(files)
    hashed = store.router.is_hashed
    mapped = reading.mapped and hashed and not store.outlives_its_process
    ops = []
    for index, table in enumerate(tables, first):
        done = table.run(
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
        if not hashed:  # a graph, and a partition function of the user's
            with tf.control_dependencies([done]):
                keys, _ = table.export()
                strangers = tf.not_equal(store.router.shards(keys), index)
                ops.append(table.run(library.de_table_erase, tf.boolean_mask(keys, strangers)))
    return None if tf.executing_eagerly() else tf.group(*ops)


def _restore_keys(store: ShardedTable, files: Any, reading: Reading, keys: tf.Tensor) -> Any:
    keys = tf.reshape(keys, [-1])
    parts = store.router.split(keys)
    ops = [
        table.run(
            library.de_table_restore_keys,
            files,
            part[0],
            replace=not reading.merge,
            **reading.attributes(),
        )
        for table, part in zip(store.tables, parts, strict=True)
    ]
    return None if tf.executing_eagerly() else tf.group(*ops)


def _restore_chosen(
    store: ShardedTable, files: list[str], reading: Reading, answers: Answers | None
) -> None:
    """Reads in bounded memory the rows that Python chooses: by a predicate or a partitioner."""
    verify(files)
    wanted = iter(answers or [])
    none = tf.constant([], store.spec.key_dtype)
    # Checks that the files fit, and empties the tables or leaves them.
    _restore_keys(store, files, reading, none)
    router = store.router
    for path in files:
        for first, sections, keys in keys_in_steps(path, store.spec):
            mask = tf.ones_like(keys, tf.bool)
            if answers is not None:
                mask = tf.constant(np.unpackbits(next(wanted), count=len(keys)).view(bool))
            shards = router.shards(keys) if router.count > 1 else None
            for index, table in enumerate(store.tables, router.first):
                own = mask if shards is None else tf.logical_and(mask, tf.equal(shards, index))
                table.run(
                    library.de_table_restore_part,
                    path,
                    tf.constant(first, tf.int64),
                    tf.constant(sections, tf.int64),
                    own,
                    **reading.attributes(),
                )


def keys_in_steps(path: str, spec: TableSpec) -> Iterator[tuple[int, int, tf.Tensor]]:
    """Yields the first section, the number of sections and all their keys, file through.

    Args:
        path: A snapshot file.
        spec: Of the table, for its dtypes.
    """
    info = about(path)
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
            value_dtype=tf.as_dtype(info["reads_as"]),  # which may be one that is converted
            with_values=False,
        )
        yield first, count, keys


def about(path: str, *, verified: bool = False) -> dict[str, Any]:
    """Returns what a snapshot file says of itself, such as `rows`, `id` and `metadata`.

    Args:
        path: The file.
        verified: Whether to check every byte first.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            return dict(json.loads(library.de_snapshot_info(path, verify=verified).numpy()))
    # A graph of TensorFlow 1 is being built, whose own sessions come later.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return dict(json.loads(session.run(library.de_snapshot_info(path, verify=verified))))


def verify(paths: Sequence[str]) -> None:
    """Raises unless every byte of the files is as it was written.

    Raises:
        tf.errors.DataLossError: One is damaged.
        tf.errors.InvalidArgumentError: One is no snapshot file.
    """
    for path in paths:
        about(path, verified=True)


def _own_files(files: Sequence[str], count: int) -> list[list[str]] | None:
    """Returns each table's files, or None where the keys were divided in another way.

    Args:
        files: Each base is followed by its deltas.
        count: Of the tables.
    """
    groups: dict[int, list[str]] = {}
    for path in files:
        metadata = about(path)["metadata"]
        shard, _, shards = str(metadata.get("shard", "")).partition("/")
        if shards != str(count) or metadata.get("partition") != "hash":
            return None
        groups.setdefault(int(shard), []).append(path)
    return [groups[index] for index in range(count)] if len(groups) == count else None


def _chosen(wanted: Predicate, keys: tf.Tensor) -> tf.Tensor:
    mask = tf.convert_to_tensor(wanted(keys))
    if mask.dtype != tf.bool or mask.shape != keys.shape:
        raise ValueError(
            "A predicate of keys must return a bool for each of them. "
            + received(dtype=mask.dtype.name, shape=tuple(mask.shape), keys=tuple(keys.shape))
        )
    return mask


@contextlib.contextmanager
def _removed_on_error(paths: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for path in paths:
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(path)
        raise
