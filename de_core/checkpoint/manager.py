"""Incremental checkpoints of a whole model: a base from time to time, and deltas between."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.types import Target
from de_core.checkpoint import reference
from de_core.checkpoint.directory import Directory
from de_core.checkpoint.table_state import Plan, following
from de_core.snapshot.table_files import Reading, follows
from de_core.tables.sharded import ShardedTable

# One list per shard of a table: its base and the deltas that follow, each as file name and id.
_Chains = list[list[tuple[str, str]]]


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
        for argument, value in (
            ("max_to_keep", max_to_keep),
            ("compact_after", compact_after),
            ("base_every", base_every),
        ):
            optional = argument != "compact_after" and value is None
            if not optional and (not isinstance(value, int) or value < 1):
                raise ValueError(
                    f"`{argument}` must be a positive integer. {received(**{argument: value})}"
                )
        folder = os.fspath(directory)
        paths.check_readable(folder, "directory")
        if not name or "/" in name:
            raise ValueError(
                f"`name` must be valid in a file name, without a slash. {received(name=name)}"
            )
        is_checkpoint = isinstance(target, tf.train.Checkpoint)
        self._checkpoint: tf.train.Checkpoint = (
            target if is_checkpoint else tf.train.Checkpoint(target=target)
        )
        self._files = Directory(folder, name)
        self._max_to_keep = max_to_keep
        self._compact_after = compact_after
        self._base_every = base_every
        self._consistent = consistent
        self._chain = f"checkpoint {self._files.path}"
        self._lock = threading.RLock()  # only one save or restore at a time, from any thread
        self._chains: dict[ShardedTable, _Chains] = {}
        self._saves_since_base = 0
        self._compaction: _Compaction | None = None
        #: The reports of the save ops in the last save, by table name.
        self.reports: dict[str, list[dict[str, Any]]] = {}

    @property
    def directory(self) -> str:
        """The directory of the checkpoints."""
        return self._files.path

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of all checkpoints, the oldest first."""
        return self._files.prefixes()

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest complete checkpoint, or None."""
        return self._files.latest()

    def save(self) -> str:
        """Writes the next checkpoint.

        A failed save leaves earlier checkpoints whole. The next save still contains all changes.
        Calls from several threads run one after another.

        Returns:
            The checkpoint's prefix.

        Raises:
            tf.errors.OpError: A file cannot be written.
        """
        with self._lock:
            self._take_compaction(wait=False)
            # Plan a delta for each table whose chain can be continued, and a base for all others.
            if self._base_every is not None and self._saves_since_base + 1 >= self._base_every:
                self._chains.clear()
            names = self._files.names()
            self._chains = {
                table: chains
                for table, chains in self._chains.items()
                if {name for chain in chains for name, _ in chain} <= names
                and self._follows(table, chains)
            }
            earlier = {
                table: tf.constant([pair for chain in chains for pair in chain])
                for table, chains in self._chains.items()
            }
            attributes = {"chain": self._chain, "commit": False, "consistent": self._consistent}
            plan = Plan(attributes=attributes, earlier=earlier)
            prefix = self._files.next_prefix(names)
            # Write the tables while training continues, then everything else.
            try:
                with following(plan):
                    self._checkpoint.write(prefix)
                self._files.sync(prefix)
            except BaseException:
                self._files.remove(prefix, self._in_use())
                raise
            # Let the tables forget the changes that were written.
            self._saves_since_base = self._saves_since_base + 1 if earlier else 0
            self.reports = {}
            for table, (made, reports) in plan.written.items():
                if not table.outlives_its_process:  # A persistent table tracks no changes.
                    self._chains[table] = _chains(made, len(table.tables))
                new = [json.loads(report.numpy()) for report in reports]
                self.reports.setdefault(table.name, []).extend(new)
                for shard, report in zip(table.tables, new, strict=True):
                    shard.run(library.de_table_commit_save, report["id"], chain=self._chain)
            # Record the checkpoint, delete what no checkpoint needs, and compact long chains.
            self._files.record(prefix, self._max_to_keep, self._in_use())
            long = {
                table: chains
                for table, chains in self._chains.items()
                if len(chains[0]) > self._compact_after
            }
            if long and self._compaction is None:
                most_kept = self._compact_after // 2
                self._compaction = _Compaction(self.directory, prefix, long, most_kept)
            return prefix

    def restore(self, prefix: str | None = None) -> str | None:
        """Restores a checkpoint. If the number of shards is the same, the next save is a delta.

        Args:
            prefix: The checkpoint's prefix; None for the newest complete one.

        Returns:
            The prefix, or None if there is no checkpoint yet.
        """
        with self._lock:
            self._take_compaction(wait=True)
            prefix = self.latest_checkpoint if prefix is None else prefix
            if prefix is None:
                return None
            self._chains.clear()
            self._saves_since_base = 0
            plan = Plan(reading=Reading(chain=self._chain))
            with following(plan):
                self._checkpoint.read(prefix)
            for table, restored in plan.restored.items():
                if restored.shape[0] % len(table.tables) == 0:
                    chains = _chains(restored, len(table.tables))
                    if chains and self._follows(table, chains):
                        self._chains[table] = chains
            return prefix

    def wait(self) -> None:
        """Waits for compaction in the background. If it failed, the next save writes a base."""
        with self._lock:
            self._take_compaction(wait=True)

    def _follows(self, table: ShardedTable, chains: _Chains) -> bool:
        """Returns whether the next deltas of the table's shards will continue these chains."""
        pairs = zip(table.tables, chains, strict=True)
        return all(follows(shard, self._chain, chain[-1][1]) for shard, chain in pairs)

    def _in_use(self) -> set[str]:
        used = {name for chains in self._chains.values() for chain in chains for name, _ in chain}
        return used | (self._compaction.targets if self._compaction else set())

    def _take_compaction(self, *, wait: bool) -> None:
        compaction = self._compaction
        if compaction is None or not compaction.finished(wait):
            return
        self._compaction = None
        if compaction.error is not None:
            tf.get_logger().warning(
                "The deltas in %r could not be compacted. The next save writes a base. Error: %s",
                self.directory,
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


class _Compaction:
    """A thread that compacts chains of files. It keeps at most `most_kept` files of a chain."""

    def __init__(
        self, folder: str, prefix: str, chains: dict[ShardedTable, _Chains], most_kept: int
    ) -> None:
        #: For each shard the merged files, and the file that replaces them.
        self.made: dict[ShardedTable, list[tuple[list[tuple[str, str]], tuple[str, str]]]] = {}
        self.error: BaseException | None = None
        self._work = []
        for table, each in chains.items():
            targets = reference.file_names(prefix, len(each))
            self._work.append((table, [list(chain) for chain in each], targets))
        self.targets = {paths.base_name(path) for _, _, made in self._work for path in made}
        self._folder = folder
        self._most_kept = most_kept
        self._thread = threading.Thread(target=self._run, name="de_core compaction", daemon=True)
        self._thread.start()

    def finished(self, wait: bool) -> bool:
        if wait:
            self._thread.join()
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for table, chains, targets in self._work:
                made = []
                files = [[paths.join(self._folder, name) for name, _ in each] for each in chains]
                first = _first_to_merge(files, self._most_kept)
                for chain, own, target in zip(chains, files, targets, strict=True):
                    library.de_snapshot_compact(own[first:], target)
                    made.append((chain[first:], (paths.base_name(target), chain[-1][1])))
                self.made[table] = made
        except Exception as error:  # The next save logs it and writes a base.
            self.error = error


def _first_to_merge(files: list[list[str]], most_kept: int) -> int:
    """Returns the number of the first file that a compaction merges with all later ones.

    At most `most_kept` files remain, each at least twice as large as all later ones together. So a
    row is written again a few times, not once per compaction. Deltas with tombstones end in a base,
    because only a new base lacks the bytes of removed rows.

    Args:
        files: The files of each shard. All chains of a table have the same length before and after.
        most_kept: Number of files of a chain to keep at most.
    """
    infos = [
        [json.loads(library.de_snapshot_info(each, verify=False).numpy()) for each in shards]
        for shards in zip(*files, strict=True)
    ]
    if any(info["tombstones"] for shards in infos for info in shards):
        return 0
    sizes = [sum(info["bytes"] for info in shards) for shards in infos]
    first = len(sizes) - 1
    while first > 0 and (sizes[first - 1] <= 2 * sum(sizes[first:]) or first > most_kept):
        first -= 1
    return first


def _chains(made: tf.Tensor, tables: int) -> _Chains:
    pairs = [(str(name), str(identity)) for name, identity in made.numpy().astype(str)]
    length = len(pairs) // tables
    return [pairs[length * index : length * (index + 1)] for index in range(tables)]
