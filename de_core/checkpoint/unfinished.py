"""Notes of saves that have begun: a later save reads there which files a killed save has left.

A save writes its note before its first file and removes it after its last act. The note holds the
names of the files that the save replaces. Once the directory's manifest names other files, another
save has finished since, and the noted save can no longer become the checkpoint.
"""

from __future__ import annotations

import json
import re

import tensorflow as tf

from de_core.base import paths
from de_core.checkpoint.sources import SUFFIX

_NOTE = re.compile(r"\.SAVING-([0-9a-f]{8})")


def name_of(tag: str) -> str:
    """Returns the name of a save's note.

    Args:
        tag: The save's eight hexadecimal digits, with which the names of its files end.
    """
    return f".SAVING-{tag}"


def note(folder: str, tag: str, replaced: set[str]) -> None:
    """Writes the note of a save that begins.

    Args:
        folder: The directory.
        tag: As for `name_of`.
        replaced: The names of the files that the directory's manifest names now.

    Raises:
        tf.errors.OpError: The note cannot be written.
    """
    with tf.io.gfile.GFile(paths.join(folder, name_of(tag)), "w") as file:
        file.write(json.dumps(sorted(replaced)))


def outdated(folder: str, tag: str, current: set[str]) -> set[str]:
    """Returns the names of files that no save needs any more, and of their notes.

    Args:
        folder: The directory; no other save may replace its manifest meanwhile.
        tag: The save that is about to replace the manifest. Its note is outdated too.
        current: The names of the files that the manifest names.
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
    """Returns what a note holds; None if it is gone or torn."""
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            return {name for name in json.loads(file.read()) if _IS_OURS.fullmatch(name)}
    except (tf.errors.NotFoundError, ValueError, TypeError):
        return None


_IS_OURS = re.compile(rf"[^/]*-\d+of\d+-\d+[0-9a-f]{{8}}{re.escape(SUFFIX)}")
