"""The manifest lists the files of a checkpoint of tables. A save writes it last, atomically."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import zlib
from typing import Any

import tensorflow as tf

from de_core.base import paths

#: File name of the manifest.
NAME = "MANIFEST"
_FORMAT = "de_core tables 1"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint of tables.

    Attributes:
        tables: For each Variable name, its files. A file is a dict of `file` (its name in the
            directory), `id`, and the other fields of its save's report.
        created: Time of the save in seconds since 1970.
    """

    tables: dict[str, list[dict[str, Any]]]
    created: float = dataclasses.field(default_factory=time.time)

    def file_names(self) -> set[str]:
        """Returns the names of all files."""
        return {file["file"] for files in self.tables.values() for file in files}


def write(folder: str, manifest: Manifest) -> None:
    """Replaces the manifest of a directory atomically.

    Raises:
        tf.errors.OpError: The manifest cannot be written. If only syncing the folder failed, the
            directory already contains the new manifest.
    """
    body = json.dumps(dataclasses.asdict(manifest), sort_keys=True)
    text = json.dumps({"format": _FORMAT, "checksum": _checksum(body), "body": body}, indent=1)
    temporary = paths.join(folder, f".{NAME}-{os.getpid()}")
    try:
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write(text)
        paths.sync(temporary)
        tf.io.gfile.rename(temporary, paths.join(folder, NAME), overwrite=True)
    except BaseException:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        raise
    paths.sync(folder)


def exists(folder: str) -> bool:
    """Returns whether a directory has a manifest."""
    return bool(tf.io.gfile.exists(paths.join(folder, NAME)))


def read(folder: str) -> Manifest:
    """Reads the manifest of a directory.

    Raises:
        tf.errors.NotFoundError: The directory has no manifest.
        tf.errors.DataLossError: The manifest is damaged.
    """
    path = paths.join(folder, NAME)
    if not tf.io.gfile.exists(path):
        raise tf.errors.NotFoundError(
            None,
            None,
            "A whole checkpoint of tables must have a manifest. An interrupted save leaves none. "
            f"Received: {folder!r} without {NAME}.",
        )
    with tf.io.gfile.GFile(path, "rb") as file:
        data = file.read()
    try:
        outer = json.loads(data)
        if outer["format"] == _FORMAT and outer["checksum"] == _checksum(outer["body"]):
            return Manifest(**json.loads(outer["body"]))
    except (ValueError, KeyError, TypeError):
        pass
    raise tf.errors.DataLossError(
        None, None, f"A manifest must have a valid checksum. Received: damaged file {path!r}."
    )


def _checksum(body: str) -> int:
    return zlib.crc32(body.encode())
