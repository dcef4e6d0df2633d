"""Paths on any of TensorFlow's file systems: plain strings, as `pathlib` would spoil `gs://`."""

from __future__ import annotations

import os
import re

import tensorflow as tf

from de_core.base.checks import received


def join(folder: str, name: str) -> str:
    """Returns the path of a name in a folder; the empty folder is the working directory."""
    return f"{folder.rstrip('/') or folder[:1]}/{name}" if folder.strip("/") else folder[:1] + name


def literal(folder: str) -> str:
    """Returns a folder as a part of a pattern for `tf.io.gfile.glob`, which matches it alone."""
    return re.sub(r"([*?\[\\])", r"\\\1", folder)


def check_readable(path: str, argument: str) -> None:
    """Raises where TensorFlow would read nothing of what was written.

    Args:
        path: A directory.
        argument: Its name, for the error.

    Raises:
        ValueError: The path has characters that TensorFlow takes for parts of patterns.
    """
    if "[" in path or "\\" in path:
        raise ValueError(
            f"`{argument}` must be without '[' and '\\', which TensorFlow takes for parts of "
            f"patterns when it reads a checkpoint or a SavedModel. {received(**{argument: path})}"
        )


def base_name(path: str) -> str:
    """Returns what follows the last slash."""
    return path.rpartition("/")[2]


def folder_of(path: str) -> str:
    """Returns what comes before the last slash; the root keeps its own."""
    folder, slash, _ = path.rpartition("/")
    return folder or slash


def sync(path: str) -> None:
    """Waits until a local file or a folder's entries are on the disk; other file systems see to it.

    Raises:
        tf.errors.UnknownError: The disk fails to keep them.
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
            "What is saved must reach the disk. Check the disk, then save again. "
            f"Received: {path!r} fails to sync: {error}",
        ) from error
