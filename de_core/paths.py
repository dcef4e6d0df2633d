"""Paths on any of TensorFlow's file systems: plain strings, as `pathlib` would spoil `gs://`."""

from __future__ import annotations

import re

from de_core.config import received


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
