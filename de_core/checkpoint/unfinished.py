"""Notes of running saves. They tell a later save which files a killed save left.

A save writes its note before its first file and removes it at its very end. The note lists the
files that the save replaces. If the directory's manifest names other files, another save has
finished since. Then the noted save can no longer become the checkpoint.
"""

from __future__ import annotations

import json
import re

import tensorflow as tf

from de_core.base import paths
from de_core.checkpoint.sources import SUFFIX

_NOTE = re.compile(r"\.SAVING-([0-9a-f]{8})")


def name_of(tag: str) -> str:
    """Returns the file name of a save's note.

    Args:
        tag: The save's eight hexadecimal digits, the last part of its files' names.
    """
    return f".SAVING-{tag}"


def note(folder: str, tag: str, replaced: set[str]) -> None:
    """Writes the note of a save that is starting.

    Args:
        folder: The directory.
        tag: The save's eight hexadecimal digits.
        replaced: Names of the files in the directory's current manifest.

    Raises:
        tf.errors.OpError: The note cannot be written.
    """
    with tf.io.gfile.GFile(paths.join(folder, name_of(tag)), "w") as file:
        file.write(json.dumps(sorted(replaced)))


def outdated(folder: str, tag: str, current: set[str]) -> set[str]:
    """Returns the names of the files and notes that no save needs any more.

    Args:
        folder: The directory. No other save may replace its manifest meanwhile.
        tag: The tag of the save that is about to replace the manifest. Its note is outdated too.
        current: Names of the files in the manifest.
    """
    names = tf.io.gfile.listdir(folder)
    found = {name_of(tag)}
    for name in names:
        match = _NOTE.fullmatch(name)
        replaced = _read(paths.join(folder, name)) if match and match[1] != tag else None
        if match is None or replaced is None or replaced == current:
            continue
        own = re.compile(rf".*-\d+of\d+-\d+{match[1]}{re.escape(SUFFIX)}(\.tmp-[0-9a-f]{{16}})?")
        found |= {name, *replaced, *filter(own.fullmatch, names)}
    return found


def _read(path: str) -> set[str] | None:
    """Returns a note's file names; None if the note is missing or damaged."""
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            return {name for name in json.loads(file.read()) if _IS_OURS.fullmatch(name)}
    except (tf.errors.NotFoundError, ValueError, TypeError):
        return None


_IS_OURS = re.compile(rf"[^/]*-\d+of\d+-\d+[0-9a-f]{{8}}{re.escape(SUFFIX)}")
