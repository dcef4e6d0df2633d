"""The manifest lists the files of a checkpoint of tables. A save writes it last, atomically.

A save writes a note before its first file and removes it at its very end. The note lists the files
that the save replaces. If the directory's manifest names other files, another save has finished
since. Then the noted save can no longer become the checkpoint, and a later save removes its files.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from typing import Any, TypeAlias

import tensorflow as tf

from de_core.base import paths
from de_core.tables.served_copy import SUFFIX

#: File name of the manifest.
NAME = "MANIFEST"
_FORMAT = "de_core tables 1"
_NOTE = re.compile(r"\.SAVING-([0-9a-f]{8})")
_IS_OURS = re.compile(rf"[^/]*-\d+of\d+-\d+[0-9a-f]{{8}}{re.escape(SUFFIX)}")


#: For each Variable name, its files. A file is a dict of `file` (its name in the directory), `id`,
#: and the other fields of its save's report.
Tables: TypeAlias = dict[str, list[dict[str, Any]]]


def write(folder: str, tables: Tables) -> None:
    """Replaces the manifest of a directory atomically.

    Raises:
        tf.errors.OpError: The manifest cannot be written. If only syncing the folder failed, the
            directory already contains the new manifest.
    """
    body = json.dumps({"created": time.time(), "tables": tables}, sort_keys=True)
    text = json.dumps({"format": _FORMAT, "checksum": _checksum(body), "body": body}, indent=1)
    temporary = paths.join(folder, f".{NAME}-{os.getpid()}")
    try:
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write(text)
        paths.sync(temporary)
        tf.io.gfile.rename(temporary, paths.join(folder, NAME), overwrite=True)
    except BaseException:
        paths.remove([temporary])
        raise
    paths.sync(folder)


def exists(folder: str) -> bool:
    """Returns whether a directory has a manifest."""
    return bool(tf.io.gfile.exists(paths.join(folder, NAME)))


def read(folder: str) -> Tables:
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
            return dict(json.loads(outer["body"])["tables"])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise tf.errors.DataLossError(
        None, None, f"A manifest must have a valid checksum. Received: damaged file {path!r}."
    )


def file_names(folder: str) -> set[str]:
    """Returns the names of the files in a directory's manifest; none without a manifest."""
    return names_of(read(folder)) if exists(folder) else set()


def names_of(tables: Tables) -> set[str]:
    """Returns the names of all files of tables."""
    return {file["file"] for files in tables.values() for file in files}


def note_name(tag: str) -> str:
    """Returns the file name of a save's note. `tag` is the last part of the names of its files."""
    return f".SAVING-{tag}"


def write_note(folder: str, tag: str) -> None:
    """Writes the note of a save that is starting.

    Raises:
        tf.errors.OpError: The note cannot be written.
    """
    with tf.io.gfile.GFile(paths.join(folder, note_name(tag)), "w") as file:
        file.write(json.dumps(sorted(file_names(folder))))


def outdated(folder: str, tag: str) -> set[str]:
    """Returns the names of the files and notes that no save needs once the manifest is replaced.

    Args:
        folder: The directory. No other save may replace its manifest meanwhile.
        tag: The tag of the save that is about to replace the manifest. Its note is outdated too.
    """
    names, current = tf.io.gfile.listdir(folder), file_names(folder)
    found = {note_name(tag), *current}
    for name in names:
        match = _NOTE.fullmatch(name)
        if match is None or match[1] == tag:
            continue
        try:
            with tf.io.gfile.GFile(paths.join(folder, name), "r") as file:
                replaced = {each for each in json.loads(file.read()) if _IS_OURS.fullmatch(each)}
        except (tf.errors.NotFoundError, ValueError, TypeError):  # it is missing or damaged
            continue
        if replaced != current:
            own = rf".*-\d+of\d+-\d+{match[1]}{re.escape(SUFFIX)}(\.tmp-[0-9a-f]{{16}})?"
            found |= {name, *replaced, *(each for each in names if re.fullmatch(own, each))}
    return found


def _checksum(body: str) -> int:
    return zlib.crc32(body.encode())
