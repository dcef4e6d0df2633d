"""A directory of numbered checkpoints. Later checkpoints may need files of earlier ones."""

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
        path: The directory; it is created.
        name: Name of the checkpoints.
    """

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self._name = name
        own = re.escape(name)
        self._index = re.compile(own + r"-(\d+)\.index")
        # A snapshot file, perhaps with the suffix of a file that is being written.
        self._snapshot = re.compile(
            rf"({own}-\d+\.data-r[0-9a-z]{{4}}-of-[0-9a-z]{{5}})(?:\.tmp-[0-9a-f]{{16}})?"
        )
        # Maps a checkpoint's prefix to the files that it needs. Each file is a tuple of its
        # possible names.
        self._needs: dict[str, list[tuple[str, ...]]] = {}
        tf.io.gfile.makedirs(path)

    def prefixes(self) -> list[str]:
        """Returns the prefixes of complete checkpoints, the oldest first."""
        names = self.names()
        return [each for each in self._begun(names) if _are_all_in(names, self._needed(each))]

    def latest(self) -> str | None:
        """Returns the prefix of the newest complete checkpoint, or None."""
        return next(filter(is_whole, reversed(self._begun(self.names()))), None)

    def next_prefix(self, names: set[str]) -> str:
        """Returns the prefix of the next checkpoint.

        Args:
            names: The names of the directory's files.
        """
        begun = self._begun(names)
        number = int(begun[-1].rpartition("-")[2]) + 1 if begun else 1
        return paths.join(self.path, f"{self._name}-{number}")

    def sync(self, prefix: str) -> None:
        """Waits until TensorFlow's files of a checkpoint are on disk.

        The rows' files are already there when the op that wrote them returns.
        """
        for name in _of_tensorflow(self.names(), prefix):
            paths.sync(paths.join(self.path, name))
        paths.sync(self.path)

    def record(self, prefix: str, keep: int | None, in_use: set[str]) -> None:
        """Records a checkpoint as the one that `tf.train.latest_checkpoint` returns.

        Then deletes the oldest checkpoints, and the files that no other checkpoint needs.

        Args:
            prefix: The checkpoint's prefix.
            keep: Number of checkpoints to keep; None for all. Incomplete checkpoints do not count.
                They are deleted once they are older than the kept ones.
            in_use: Names of further files to keep.
        """
        self._needs.pop(prefix, None)  # an earlier checkpoint may have had this prefix
        names = self.names()
        begun = self._begun(names)
        needs = {each: self._needed(each) for each in begun}
        kept = [each for each in begun if _are_all_in(names, needs[each])][-(keep or 0) :]
        # Store names without the folder, because a folder may be moved. TensorFlow shortens
        # relative paths itself.
        shorten = paths.base_name if self.path.startswith("/") else str
        tf.compat.v1.train.update_checkpoint_state(
            self.path, shorten(prefix), [shorten(each) for each in kept]
        )
        old = begun.index(kept[0]) if keep is not None and kept else 0
        for each in begun[:old]:
            # Delete the index first: without it the checkpoint counts as incomplete.
            for name in _of_tensorflow(names, each):
                self._discard(name)
            self._needs.pop(each, None)
        used = set(in_use)
        for each in begun[old:]:
            needed = needs[each]
            if needed is None:  # the index cannot be read, so the checkpoint may need any file
                return
            used.update(*needed)
        for name in names - used:
            match = self._snapshot.fullmatch(name)
            if match is not None and match[1] not in used:
                self._discard(name)

    def remove(self, prefix: str, in_use: set[str]) -> None:
        """Deletes the files of a failed save."""
        base = paths.base_name(prefix)
        for name in self.names():
            if name.startswith(f"{base}.") and name not in in_use:
                self._discard(name)
        parts = f"{prefix}_temp"  # TensorFlow writes its files here and then moves them
        if tf.io.gfile.exists(parts):
            tf.io.gfile.rmtree(parts)

    def names(self) -> set[str]:
        """Returns the names of all files in the directory."""
        return set(tf.io.gfile.listdir(self.path))

    def _begun(self, names: set[str]) -> list[str]:
        """Returns the prefixes of checkpoints with an index. Some may lack other files."""
        numbers = [int(match[1]) for match in map(self._index.fullmatch, names) if match]
        return [paths.join(self.path, f"{self._name}-{number}") for number in sorted(numbers)]

    def _needed(self, prefix: str) -> list[tuple[str, ...]] | None:
        """Returns the files that a checkpoint needs; None if its index cannot be read."""
        if prefix not in self._needs:
            try:
                self._needs[prefix] = reference.needed(prefix)
            except tf.errors.OpError:
                return None
        return self._needs[prefix]

    def _discard(self, name: str) -> None:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(paths.join(self.path, name))


def _are_all_in(names: set[str], needed: list[tuple[str, ...]] | None) -> bool:
    return needed is not None and not any(map(names.isdisjoint, needed))


def _of_tensorflow(names: set[str], prefix: str) -> list[str]:
    """Returns TensorFlow's own files of a checkpoint, the index first."""
    # Compare the prefix first: long chains have thousands of names.
    base = paths.base_name(prefix)
    start, end = f"{base}.", len(base)
    found = [name for name in names if name.startswith(start) and _TENSORFLOWS.fullmatch(name, end)]
    return sorted(found, reverse=True)


_TENSORFLOWS = re.compile(r"\.index|\.data-\d{5}-of-\d{5}")
