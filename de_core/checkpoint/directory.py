"""A directory of numbered checkpoints, of which later ones need files of earlier ones."""

from __future__ import annotations

import contextlib
import re

import tensorflow as tf

from de_core.base import paths
from de_core.checkpoint import reference
from de_core.checkpoint.sources import is_whole


class Directory:
    """Checkpoints `<path>/<name>-<number>`, and the snapshot files beside them.

    Args:
        path: The directory; it is made.
        name: Of the checkpoints.
    """

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self._name = name
        # By prefix, the possible names of each file that the checkpoint needs.
        self._needs: dict[str, list[tuple[str, ...]]] = {}
        tf.io.gfile.makedirs(path)

    def prefixes(self) -> list[str]:
        """Returns the prefixes of checkpoints that lack no file, the oldest first."""
        names = self.names()
        return [prefix for prefix in self._begun(names) if self._has_all(prefix, names)]

    def latest(self) -> str | None:
        """Returns the prefix of the newest checkpoint of which every file is there, or None."""
        return next(filter(is_whole, reversed(self._begun(self.names()))), None)

    def next_prefix(self) -> str:
        """Returns the prefix of the next checkpoint."""
        number = max(self._numbers(self.names()), default=0) + 1
        return paths.join(self.path, f"{self._name}-{number}")

    def sync(self, prefix: str) -> None:
        """Waits until TensorFlow's files of a checkpoint are on the disk.

        Those of the rows are there since the op that wrote them returned.
        """
        for name in _of_tensorflow(self.names(), prefix):
            paths.sync(paths.join(self.path, name))
        paths.sync(self.path)

    def record(self, prefix: str, keep: int | None, in_use: set[str]) -> None:
        """Makes a checkpoint the one that `tf.train.latest_checkpoint` returns.

        Then deletes the oldest checkpoints, and the files that none of the others needs.

        Args:
            prefix: Of the checkpoint.
            keep: How many stay; None for all. A checkpoint that a killed process began to write, or
                of which a file is missing, does not count. It is deleted once it is older than the
                checkpoints that stay.
            in_use: Names of further files that stay.
        """
        self._needs.pop(prefix, None)  # its number may be one that was used before
        names = self.names()
        begun = self._begun(names)
        kept = [each for each in begun if self._has_all(each, names)][-(keep or 0) :]
        # Names without their folder, which may be moved; TensorFlow shortens relative paths itself.
        shorten = paths.base_name if self.path.startswith("/") else str
        tf.compat.v1.train.update_checkpoint_state(
            self.path, shorten(prefix), [shorten(each) for each in kept]
        )
        self._prune(names, begun, begun.index(kept[0]) if keep is not None and kept else 0, in_use)

    def _prune(self, names: set[str], begun: list[str], count: int, in_use: set[str]) -> None:
        """Deletes the first `count` checkpoints, then files that no other checkpoint needs."""
        used = set(in_use)
        for prefix in begun[:count]:
            # The index first: what has one is whole.
            for name in _of_tensorflow(names, prefix):
                self._discard(name)
            self._needs.pop(prefix, None)
        for prefix in begun[count:]:
            needed = self._needed(prefix)
            if needed is None:  # this checkpoint may need any file
                return
            used.update(*needed)
        for name in names:
            snapshot = self._snapshot_of(name)
            if snapshot is not None and snapshot not in used and name not in used:
                self._discard(name)

    def remove(self, prefix: str, in_use: set[str]) -> None:
        """Deletes what a save that failed has left."""
        base = paths.base_name(prefix)
        for name in self.names():
            if name.startswith(f"{base}.") and name not in in_use:
                self._discard(name)
        parts = f"{prefix}_temp"  # where TensorFlow writes before it renames
        if tf.io.gfile.exists(parts):
            tf.io.gfile.rmtree(parts)

    def names(self) -> set[str]:
        """Returns the names of all files in the directory."""
        return set(tf.io.gfile.listdir(self.path))

    def _begun(self, names: set[str]) -> list[str]:
        """Returns the prefixes that have an index, of which a killed process may leave a part."""
        return [paths.join(self.path, f"{self._name}-{number}") for number in self._numbers(names)]

    def _needed(self, prefix: str) -> list[tuple[str, ...]] | None:
        """Returns the files that a checkpoint needs; None if its index cannot be read."""
        if prefix not in self._needs:
            try:
                self._needs[prefix] = reference.needed(prefix)
            except tf.errors.OpError:
                return None
        return self._needs[prefix]

    def _has_all(self, prefix: str, names: set[str]) -> bool:
        needed = self._needed(prefix)
        return needed is not None and not any(names.isdisjoint(each) for each in needed)

    def _numbers(self, names: set[str]) -> list[int]:
        pattern = re.compile(re.escape(self._name) + r"-(\d+)\.index")
        matches = map(pattern.fullmatch, names)
        return sorted(int(match[1]) for match in matches if match)

    def _snapshot_of(self, name: str) -> str | None:
        """Returns which snapshot file a name is of, or will be once it is whole; else None."""
        pattern = re.escape(self._name) + r"-\d+\.data-r[0-9a-z]{4}-of-[0-9a-z]{5}"
        match = re.fullmatch(rf"({pattern})(?:\.tmp-[0-9a-f]{{16}})?", name)
        return None if match is None else match[1]

    def _discard(self, name: str) -> None:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(paths.join(self.path, name))


def _of_tensorflow(names: set[str], prefix: str) -> list[str]:
    """Returns which names are those of TensorFlow's own files of a checkpoint, the index first."""
    # By their beginning before the rest: of long chains there are thousands of names.
    base = paths.base_name(prefix)
    own = (name for name in names if name.startswith(f"{base}."))
    found = [name for name in own if _TENSORFLOWS.fullmatch(name, len(base))]
    return sorted(found, key=lambda name: not name.endswith(".index"))


_TENSORFLOWS = re.compile(r"\.index|\.data-\d{5}-of-\d{5}")
