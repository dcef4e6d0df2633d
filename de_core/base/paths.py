"""Handles paths on all of TensorFlow's file systems as strings, because `pathlib` breaks `gs://`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

import tensorflow as tf

from de_core.base.checks import received


def join(folder: str, name: str) -> str:
    """Joins a folder and a name. An empty folder is the working directory."""
    return f"{folder.rstrip('/') or folder[:1]}/{name}" if folder.strip("/") else folder[:1] + name


def literal(folder: str) -> str:
    """Escapes a folder for use in a pattern for `tf.io.gfile.glob`."""
    return re.sub(r"([*?\[\\])", r"\\\1", folder)


def check_readable(path: str, argument: str) -> None:
    """Raises if TensorFlow could not read files under this path."""
    if "[" in path or "\\" in path:
        raise ValueError(
            f"`{argument}` must not contain '[' or '\\': TensorFlow treats them as patterns when "
            f"it reads a checkpoint or a SavedModel. {received(**{argument: path})}"
        )


def base_name(path: str) -> str:
    """Returns the part after the last slash."""
    return path.rpartition("/")[2]


def folder_of(path: str) -> str:
    """Returns the part before the last slash. For a name in the root, returns "/"."""
    folder, slash, _ = path.rpartition("/")
    return folder or slash


def remove(files: Iterable[str]) -> None:
    """Deletes files. Skips a file that does not exist."""
    for path in files:
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(path)


def sync(path: str) -> None:
    """Waits until a local file, or a local folder's list of entries, is on disk.

    Does nothing for a remote path.
    """
    if "://" in path:
        return
    try:
        descriptor = os.open(path or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise tf.errors.UnknownError(
            None,
            None,
            "Saved data must reach the disk. "
            f"Received: {path!r} fails to sync: {error}. Check the disk, then save again.",
        ) from error
