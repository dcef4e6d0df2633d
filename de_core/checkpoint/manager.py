"""Incremental checkpoints of a whole model: a base from time to time, and deltas between."""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import check_integer, received, require_eager
from de_core.base.ops import library
from de_core.base.types import Target
from de_core.checkpoint import reference
from de_core.checkpoint.compaction import Chains, Compaction
from de_core.checkpoint.sources import is_whole
from de_core.checkpoint.table_state import Plan, active_plan
from de_core.checkpoint.targets import named
from de_core.snapshot.table_files import follow
from de_core.tables.sharded import ShardedTable

# TensorFlow's own files of a checkpoint, after the prefix.
_TENSORFLOWS = re.compile(r"\.index|\.data-\d{5}-of-\d{5}")
# TensorFlow's function without the warning that it is deprecated, which TensorFlow would log.
_update_state = inspect.unwrap(tf.compat.v1.train.update_checkpoint_state)


class Manager:
    """Writes incremental checkpoints. Each later checkpoint contains only the changed rows.

    The first checkpoint is a base. Each later one is a delta, which needs the files before it.
    These files are kept as long as a kept checkpoint needs them. When a chain of deltas gets long,
    a thread compacts its files while training continues: small deltas into one delta, and all files
    into a new base once the deltas are half as large as the base or contain removed rows.
    Everything except tables is written by `tf.train.Checkpoint`, which can also restore any of
    these checkpoints.

    Do not let `tf.train.CheckpointManager` delete checkpoints in the same directory: it does not
    know which files later deltas need.

    Args:
        target: A `tf.train.Checkpoint`, or a model, module, layer or Variable.
        directory: Directory of the checkpoints `<directory>/<name>-<number>`.
        max_to_keep: Number of checkpoints to keep; None for all.
        compact_after: Compact a chain after this many deltas.
        base_every: Write a base instead of a delta once per this many saves. None for a base only
            at the first save and by compaction.
        consistent: See `de.checkpoint.save`.
        name: Name of the checkpoints.

    Raises:
        TypeError: A number is not an integer.
        ValueError: A number is not positive, `name` is not a valid file name, or TensorFlow cannot
            restore from `directory`.

    Example:
    >>> import tempfile, de_core as de
    >>> users = de.Variable(dim=1, name="users")
    >>> manager = Manager(users, tempfile.mkdtemp())
    >>> users.upsert([1], [[1.0]])
    >>> base = manager.save()
    >>> users.upsert([2], [[2.0]])
    >>> delta = manager.save()
    >>> users.clear()
    >>> manager.restore() == delta, int(users.size())
    (True, 2)
    """

    def __init__(
        self,
        target: Target,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = 5,
        compact_after: int = 8,
        base_every: int | None = None,
        consistent: bool = False,
        name: str = "ckpt",
    ) -> None:
        check_integer("max_to_keep", max_to_keep, 1, or_none=True)
        check_integer("compact_after", compact_after, 1)
        check_integer("base_every", base_every, 1, or_none=True)
        folder = os.fspath(directory)
        paths.check_readable(folder, "directory")
        if not isinstance(name, str) or not name or "/" in name:
            raise ValueError(
                f"`name` must be valid in a file name, without a slash. {received(name=name)}"
            )
        paths.check_readable(name, "name")
        is_checkpoint = isinstance(target, tf.train.Checkpoint)
        self._checkpoint: tf.train.Checkpoint = (
            target if is_checkpoint else tf.train.Checkpoint(target=target)
        )
        self._folder = folder
        self._prefix = paths.join(folder, name)
        self._max_to_keep = max_to_keep
        self._compact_after = compact_after
        self._base_every = base_every
        self._consistent = consistent
        self._chain = f"checkpoint {folder}"
        self._index = re.compile(re.escape(name) + r"-(\d+)\.index")
        # A snapshot file, perhaps with the suffix of a file that is being written.
        self._snapshot = re.compile(
            rf"({re.escape(name)}-\d+\.data-r[0-9a-z]{{4}}-of-[0-9a-z]{{5}})(?:\.tmp-[0-9a-f]{{16}})?"
        )
        # The files that a checkpoint needs, by prefix; none for an index that cannot be read. Each
        # file is a tuple of its possible names.
        self._needs: dict[str, list[tuple[str, ...]]] = {}
        self._lock = threading.RLock()  # only one save or restore at a time, from any thread
        self._chains: dict[ShardedTable, Chains] = {}
        self._saves_since_base = 0
        self._compaction: Compaction | None = None
        #: The reports of the save ops in the last save, by table name.
        self.reports: dict[str, list[dict[str, Any]]] = {}
        tf.io.gfile.makedirs(folder)

    @property
    def directory(self) -> str:
        """The directory of the checkpoints."""
        return self._folder

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of all checkpoints, the oldest first."""
        names = set(tf.io.gfile.listdir(self._folder))
        return self._whole(self._begun(names), names)

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest complete checkpoint, or None."""
        begun = self._begun(set(tf.io.gfile.listdir(self._folder)))
        return next(filter(is_whole, reversed(begun)), None)

    def save(self) -> str:
        """Writes the next checkpoint.

        A failed save leaves earlier checkpoints whole. The next save still contains all changes.
        Calls from several threads run one after another.

        Returns:
            The checkpoint's prefix.

        Raises:
            RuntimeError: The caller is in a graph.
            tf.errors.OpError: A file cannot be written.
        """
        require_eager("Manager.save", "In a graph, use tf.compat.v1.train.Saver.")
        with self._lock:
            # Plan: a table gets a delta if its chain of files is whole, and otherwise a base.
            self._take_compaction(wait=False)
            names = set(tf.io.gfile.listdir(self._folder))
            if self._base_every is not None and self._saves_since_base + 1 >= self._base_every:
                self._chains.clear()
            for table, chains in list(self._chains.items()):
                files = {name for chain in chains for name, _ in chain}
                newest = [chain[-1][1] for chain in chains]
                if not files <= names or not follow(table.tables, self._chain, newest):
                    del self._chains[table]
            earlier = dict(self._chains)
            plan = Plan(self._chain, self._consistent, earlier)
            begun = self._begun(names)
            number = int(begun[-1].rpartition("-")[2]) + 1 if begun else 1
            prefix = f"{self._prefix}-{number}"
            # Write the tables while training continues, then everything else. Wait until
            # TensorFlow's files are on disk. The rows' files are, once their op has returned.
            token = active_plan.set(plan)
            try:
                self._checkpoint.write(prefix)
                for name in self._of_tensorflow(prefix, tf.io.gfile.listdir(self._folder)):
                    paths.sync(paths.join(self._folder, name))
                paths.sync(self._folder)
            except BaseException:
                own, in_use = f"{paths.base_name(prefix)}.", self._in_use()
                for name in tf.io.gfile.listdir(self._folder):
                    if name.startswith(own) and name not in in_use:
                        paths.remove([paths.join(self._folder, name)])
                parts = f"{prefix}_temp"  # TensorFlow writes its files here and then moves them
                if tf.io.gfile.exists(parts):
                    tf.io.gfile.rmtree(parts)
                raise
            finally:
                active_plan.reset(token)
            # Let the tables forget the changes that were written.
            self._saves_since_base = self._saves_since_base + 1 if earlier else 0
            self.reports = {}
            for table, (chains, reports) in plan.written.items():
                self._chains[table] = chains
                self.reports.setdefault(table.name, []).extend(reports)
                for shard, report in zip(table.tables, reports, strict=True):
                    shard.run(library.de_table_commit_save, report["id"], chain=self._chain)
            # Record the checkpoint, delete what no checkpoint needs, and compact long chains.
            written = [chain for chains, _ in plan.written.values() for chain in chains]
            self._needs[prefix] = [(name,) for chain in written for name, _ in chain]
            self._record(prefix)
            long = {t: c for t, c in self._chains.items() if len(c[0]) > self._compact_after}
            if long and self._compaction is None:
                most_kept = self._compact_after // 2
                self._compaction = Compaction(self._folder, prefix, long, most_kept)
            return prefix

    def restore(self, prefix: str | None = None) -> str | None:
        """Restores a checkpoint. If the number of shards is the same, the next save is a delta.

        Args:
            prefix: The checkpoint's prefix; None for the newest complete one.

        Returns:
            The prefix, or None if there is no checkpoint yet.

        Raises:
            RuntimeError: The caller is in a graph.
            ValueError: The target and the checkpoint have tables, but none is in both.
            tf.errors.NotFoundError: A file of the checkpoint `prefix` is missing.
            tf.errors.DataLossError: A file is damaged. Or there are checkpoints, but none is
                complete.
        """
        require_eager("Manager.restore", "In a graph, use tf.compat.v1.train.Saver.")
        with self._lock:
            self._take_compaction(wait=True)
            prefix = self.latest_checkpoint if prefix is None else prefix
            if prefix is None:
                begun = self._begun(set(tf.io.gfile.listdir(self._folder)))
                if not begun:
                    return None
                prefix = begun[-1]
                try:
                    reference.read(prefix)
                except tf.errors.OpError as error:
                    raise tf.errors.DataLossError(
                        None,
                        None,
                        f"A checkpoint of {self._folder!r} must be complete. Received: "
                        f"{len(begun)} checkpoints, none complete. The newest is {prefix!r}: "
                        f"{error.message} To begin anew, use an empty directory.",
                    ) from error
            self._chains.clear()
            self._saves_since_base = 0
            plan = Plan(self._chain)
            token = active_plan.set(plan)
            try:
                self._checkpoint.read(prefix)
            finally:
                active_plan.reset(token)
            if not plan.restored and reference.needed(prefix) and any(named(self._checkpoint)):
                raise ValueError(
                    "A checkpoint must hold the tables of the manager's target under the same "
                    f"names. Received: {prefix!r}, which holds only other tables. Give the "
                    "manager the target of the save: the model, or a tf.train.Checkpoint with the "
                    "same keyword arguments."
                )
            for table, restored in plan.restored.items():
                pairs = [(str(name), str(identity)) for name, identity in restored]
                length, rest = divmod(len(pairs), len(table.tables))
                if length and not rest:
                    chains = [pairs[at : at + length] for at in range(0, len(pairs), length)]
                    if follow(table.tables, self._chain, [chain[-1][1] for chain in chains]):
                        self._chains[table] = chains
            return prefix

    def wait(self) -> None:
        """Waits for compaction in the background. If it failed, the next save writes a base."""
        with self._lock:
            self._take_compaction(wait=True)

    def _take_compaction(self, *, wait: bool) -> None:
        compaction = self._compaction
        if compaction is None:
            return
        if wait:
            compaction.thread.join()
        if compaction.thread.is_alive():
            return
        self._compaction = None
        if compaction.error is not None:
            tf.get_logger().warning(
                "The deltas in %r could not be compacted. The next save writes a base. Error: %s",
                self._folder,
                compaction.error,
            )
            self._chains.clear()
            return
        for table, made in compaction.made.items():
            chains = self._chains.get(table, [])
            for index, (chain, (merged, joined)) in enumerate(zip(chains, made, strict=False)):
                if merged[0] in chain and merged[-1] in chain:
                    first, last = chain.index(merged[0]), chain.index(merged[-1])
                    chains[index] = [*chain[:first], joined, *chain[last + 1 :]]

    def _record(self, prefix: str) -> None:
        """Records a checkpoint as the one that `tf.train.latest_checkpoint` returns.

        Then deletes the oldest checkpoints, and the files that no other checkpoint needs.
        Incomplete checkpoints do not count as kept. They are deleted once they are older than the
        kept ones.
        """
        names = set(tf.io.gfile.listdir(self._folder))
        begun = self._begun(names)
        keep = self._max_to_keep
        kept = self._whole(begun, names)[-(keep or 0) :]
        # Store names without the folder, because a folder may be moved. TensorFlow shortens
        # relative paths itself.
        shorten = paths.base_name if self._folder.startswith("/") else str
        _update_state(self._folder, shorten(prefix), list(map(shorten, kept)))
        old = begun.index(kept[0]) if keep is not None and kept else 0
        for each in begun[:old]:
            # Delete the index first: without it the checkpoint counts as incomplete.
            for name in sorted(self._of_tensorflow(each, names), reverse=True):
                paths.remove([paths.join(self._folder, name)])
            self._needs.pop(each, None)
        used = self._in_use()
        for each in begun[old:]:
            if each not in self._needs:  # its index cannot be read, so it may need any file
                return
            used.update(*self._needs[each])
        for name in names - used:
            match = self._snapshot.fullmatch(name)
            if match is not None and match[1] not in used:
                paths.remove([paths.join(self._folder, name)])

    def _in_use(self) -> set[str]:
        """Returns the names of the files that the next deltas, or a compaction, need."""
        used = {name for chains in self._chains.values() for chain in chains for name, _ in chain}
        return used | (self._compaction.targets if self._compaction else set())

    def _begun(self, names: set[str]) -> list[str]:
        """Returns the prefixes of checkpoints with an index. Some may lack other files."""
        found = [int(match[1]) for match in map(self._index.fullmatch, names) if match]
        return [f"{self._prefix}-{number}" for number in sorted(found)]

    def _whole(self, begun: list[str], names: set[str]) -> list[str]:
        """Returns the checkpoints whose files are all among the names in the folder."""
        whole = []
        for prefix in begun:
            if prefix not in self._needs:
                try:
                    self._needs[prefix] = reference.needed(prefix)
                except tf.errors.OpError:  # its index cannot be read
                    continue
            if not any(map(names.isdisjoint, self._needs[prefix])):
                whole.append(prefix)
        return whole

    def _of_tensorflow(self, prefix: str, names: Iterable[str]) -> list[str]:
        """Returns the names of TensorFlow's own files of a checkpoint."""
        # Compare the prefix first: long chains have thousands of names.
        base = paths.base_name(prefix)
        start, end = f"{base}.", len(base)
        return [n for n in names if n.startswith(start) and _TENSORFLOWS.fullmatch(n, end)]
