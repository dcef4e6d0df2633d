"""A directory of numbered checkpoints, of which later ones need files of earlier ones."""

from __future__ import annotations

import contextlib
import re

import tensorflow as tf

from de_core import paths
from de_core.checkpoint import manifest, reference


class Directory:
    """Checkpoints `<path>/<name>-<number>`, and the snapshot files beside them.

    Args:
        path: The directory; it is made.
        name: Of the checkpoints.
    """

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self._name = name
        tf.io.gfile.makedirs(path)

    def prefixes(self) -> list[str]:
        """Returns the prefixes of all checkpoints, the oldest first."""
        return [paths.join(self.path, f"{self._name}-{number}") for number in self._numbers()]

    def next_prefix(self) -> str:
        """Returns the prefix of the next checkpoint."""
        number = max(self._numbers(), default=0) + 1
        return paths.join(self.path, f"{self._name}-{number}")

    def sync(self, prefix: str) -> None:
        """Waits until TensorFlow's files of a checkpoint are on the disk."""
        for file in tf.io.gfile.glob(f"{prefix}.*"):
            manifest.sync(file)
        manifest.sync(self.path)

    def record(self, prefix: str) -> None:
        """Makes a checkpoint the one that `tf.train.latest_checkpoint` returns."""
        tf.compat.v1.train.update_checkpoint_state(self.path, prefix, self.prefixes())

    def prune(self, keep: int | None, in_use: set[str]) -> None:
        """Deletes the oldest checkpoints, and the files that none of the others needs.

        Args:
            keep: How many stay; None for all.
            in_use: Names of further files that stay.
        """
        prefixes = self.prefixes()
        old = [] if keep is None else prefixes[:-keep]
        for prefix in old:
            # The index first: what has one is whole.
            for pattern in (".index", ".data-0????-of-0????"):
                for file in tf.io.gfile.glob(prefix + pattern):
                    tf.io.gfile.remove(file)
        used = set(in_use)
        for prefix in prefixes[len(old) :]:
            used |= {name for name, _ in reference.pairs(prefix)}
        for name in tf.io.gfile.listdir(self.path):
            if self._is_snapshot(name) and name not in used:
                self._discard(name)

    def remove(self, prefix: str, in_use: set[str]) -> None:
        """Deletes what a save that failed has left."""
        base = paths.base_name(prefix)
        for name in tf.io.gfile.listdir(self.path):
            if name.startswith(f"{base}.") and name not in in_use:
                self._discard(name)

    def _numbers(self) -> list[int]:
        pattern = re.compile(re.escape(self._name) + r"-(\d+)\.index")
        matches = (pattern.fullmatch(name) for name in tf.io.gfile.listdir(self.path))
        return sorted(int(match[1]) for match in matches if match)

    def _is_snapshot(self, name: str) -> bool:
        pattern = re.escape(self._name) + r"-\d+\.data-r[0-9a-z]{4}-of-[0-9a-z]{5}"
        return re.fullmatch(pattern, name) is not None

    def _discard(self, name: str) -> None:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(paths.join(self.path, name))
