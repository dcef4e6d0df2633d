"""Where the rows of a table larger than memory are (`Variable`'s argument `tier`)."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any
from urllib.parse import quote

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras
from de_core.tables.admission import Configured


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class DiskTier(Configured):
    """Keeps the rows that are used in memory, and all other rows on a local disk.

    A row moves to the disk with its optimizer slots when memory is full and other rows were written
    later. It comes back before it is written again. A lookup reads it from the disk, or from a
    cache in memory. All methods, optimizers, checkpoints and exports work as in memory.

    The files belong to this process: they are deleted with the table. To continue after a restart,
    save checkpoints.

    Args:
        path: A folder on a local disk. Each table makes a folder with its name in it. Two live
            tables cannot use one folder.
        memory_bytes: Memory for rows, their keys, their index and the cache, divided among the
            shards of the table. The index of the rows on the disk needs at most 32 bytes per row
            in addition, or 40 with string keys of any length, and up to 1 MiB.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: `path` is empty or not local, or `memory_bytes` is not positive.

    Example:
    >>> import tempfile
    >>> import de_core as de
    >>> tier = de.DiskTier(tempfile.mkdtemp(), memory_bytes=4096)
    >>> users = de.Variable(dim=64, name="users", tier=tier)
    >>> for first in 0, 500:
    ...     users.upsert(range(first, first + 500), [[1.0] * 64] * 500)
    >>> int(users.size()), users.stats()["tier"]["cold_rows"]
    (1000, 500)
    """

    path: str
    memory_bytes: int

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)):
            raise TypeError(f"`path` must be a folder's name. {received(path=self.path)}")
        object.__setattr__(self, "path", os.fspath(self.path))
        if not self.path or "://" in self.path:
            raise ValueError(
                "`path` must be a folder on a local disk; a tier needs fast random reads. "
                + received(path=self.path)
            )
        check_integer("memory_bytes", self.memory_bytes, 1)

    def attributes(self, table: str, shards: int) -> dict[str, Any]:
        """Returns the attributes of the op that creates one of the shards that share the memory."""
        return {
            "tier_path": str(pathlib.Path(self.path).absolute() / quote(table, safe="")),
            "tier_bytes": max(1, self.memory_bytes // shards),
        }
