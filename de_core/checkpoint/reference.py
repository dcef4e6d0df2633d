"""References: the names and ids of snapshot files, stored in a TensorFlow checkpoint.

The files are called `<prefix>.data-r0000-of-k3x9a`. TensorFlow deletes files of this pattern
(`<prefix>.data-?????-of-?????`) with the checkpoint, but never uses such a name itself. The last
part is random. So if a checkpoint is overwritten, the files of the old checkpoint stay whole.
"""

from __future__ import annotations

import contextlib
import secrets
import weakref
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from de_core.base import paths
from de_core.base.ops import library
from de_core.snapshot.file import about

_MARK = ".data-r"
# For each graph being built, the number of file numbers that its tables have.
_NUMBERS: weakref.WeakKeyDictionary[tf.Graph, int] = weakref.WeakKeyDictionary()


def file_names(prefix: str, count: int) -> list[str]:
    """Returns new names for `count` files of a checkpoint."""
    while True:
        tag = np.base_repr(secrets.randbelow(36**5), 36).lower().zfill(5)
        names = [f"{prefix}{_MARK}{index:04x}-of-{tag}" for index in range(count)]
        if not any(map(tf.io.gfile.exists, names)):
            return names


def remove_outdated(prefix: str, saves: list[tuple[str, list[str]]]) -> None:
    """Deletes files that killed, failed and overwritten saves left, which no checkpoint needs.

    Args:
        prefix: Prefix of the checkpoint that will be written next.
        saves: Prefixes and files of the last two saves of this process, the latest last.
    """
    folder, own = paths.folder_of(prefix), paths.base_name(prefix) + _MARK
    try:  # `glob` would take eight times as long
        names = tf.io.gfile.listdir(folder or ".")
    except tf.errors.NotFoundError:
        names = []
    left = [paths.join(folder, each) for each in names if each.startswith(own) and ".tmp-" in each]
    last_prefix, last_files = saves[-1] if saves else ("", [])
    if last_files and not tf.io.gfile.exists(f"{last_prefix}.index"):
        left += last_files
    elif len(saves) > 1 and saves[0][0] == last_prefix:
        with contextlib.suppress(tf.errors.OpError, ValueError):  # if the index is damaged
            named = {name for names in needed(last_prefix) for name in names}
            made = [path for _, files in saves for path in files]
            left += [path for path in made if paths.base_name(path) not in named]
    paths.remove(left)


def graph_file_names(prefix: tf.Tensor, count: int) -> list[tf.Tensor]:
    """Like `file_names`, in a graph. Uses the time, because a graph's random numbers can repeat.

    No two tables that one graph saves get equal numbers.
    """
    graph = tf.compat.v1.get_default_graph()
    first = _NUMBERS.get(graph, 0)
    _NUMBERS[graph] = first + count
    milliseconds = tf.cast(tf.timestamp() * 1000.0, tf.int64)
    tag = tf.strings.as_string(milliseconds % 100000, width=5, fill="0")
    return [
        tf.strings.join([prefix, f"{_MARK}{index:04x}-of-", tag])
        for index in range(first, first + count)
    ]


def graph_made(files: Sequence[tf.Tensor], reports: list[tf.Tensor]) -> tf.Tensor:
    """Makes a reference to files in a graph: a string tensor [n, 2] of their names and ids."""
    names = [tf.strings.regex_replace(file, "^.*/", "") for file in files]
    return tf.stack([tf.stack(pair) for pair in zip(names, map(_id_in, reports), strict=True)])


def resolved(reference: np.ndarray, prefix: str) -> list[str]:
    """Returns the paths of the files in a reference.

    Args:
        reference: The names and ids of files, strings [n, 2].
        prefix: Current prefix of the checkpoint that contains the reference.

    Raises:
        tf.errors.NotFoundError: A file is missing.
        tf.errors.DataLossError: A file is damaged, or its id differs from the reference.
    """
    found = []
    for name, identity in reference.astype(str):
        folder = paths.folder_of(prefix)
        candidates = [paths.join(folder, each) for each in _possible_names(name, prefix)]
        present = [each for each in candidates if tf.io.gfile.exists(each)]
        if not present:
            raise tf.errors.NotFoundError(
                None,
                None,
                f"The files of checkpoint {prefix!r} must lie beside it. "
                f"Received: no file {candidates[0]!r}. Copy it from where the checkpoint was.",
            )
        check(present[0], identity)
        found.append(present[0])
    return found


def graph_resolved(reference: tf.Tensor, prefix: tf.Tensor) -> tf.Tensor:
    """Like `resolved`, in a graph. Returns a string vector; a wrong file fails at run time."""
    folder = tf.strings.regex_replace(prefix, "[^/]*$", "")
    files = tf.strings.join([folder, reference[:, 0]])

    def checked(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        path, identity = pair
        found = _id_in(library.de_snapshot_info(path))
        same = tf.debugging.Assert(
            tf.equal(found, identity),
            [_WRONG_FILE, "Received:", path, "of id", found, "wanted", identity],
        )
        with tf.control_dependencies([same]):
            return tf.identity(path)

    return tf.map_fn(checked, (files, reference[:, 1]), fn_output_signature=tf.string)


_WRONG_FILE = "The files of a checkpoint must be those that were saved with it."


def check(path: str, identity: str) -> None:
    """Checks that a file is the snapshot with this id.

    Raises:
        tf.errors.DataLossError: The file has another id or is damaged.
    """
    found = about(path)["id"]
    if found != identity:
        raise tf.errors.DataLossError(
            None, None, f"{_WRONG_FILE} Received: {path!r} of id {found}, wanted {identity}."
        )


def read(prefix: str) -> dict[str, list[str]]:
    """Returns the paths in a checkpoint's references, by checkpoint key."""
    return {key: resolved(made, prefix) for key, made in _references(prefix).items()}


def needed(prefix: str) -> list[tuple[str, ...]]:
    """Returns the possible names of each file that a checkpoint needs.

    A file's name differs from the saved one if the checkpoint was renamed.

    Raises:
        tf.errors.OpError: The checkpoint's index cannot be read.
    """
    return [
        _possible_names(str(name), prefix)
        for made in _references(prefix).values()
        for name in made[:, 0].astype(str)
    ]


def _possible_names(name: str, prefix: str) -> tuple[str, ...]:
    own = paths.base_name(prefix) + name[name.rfind(_MARK) :] if _MARK in name else name
    return (name,) if name == own else (name, own)


def _references(prefix: str) -> dict[str, np.ndarray]:
    # `load_checkpoint` treats every prefix on `ram://` as a directory.
    reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    shapes = reader.get_variable_to_shape_map()
    return {
        key: np.asarray(reader.get_tensor(key))
        for key in sorted(shapes)
        if key.endswith(_KEYS) and len(shapes[key]) == 2
    }


#: Name of the tensor with a reference. The tensor's key in a checkpoint ends with it.
KEY = "de_rows"
# A TensorFlow 1 Saver names the tensor `<Variable>/rows`, or with several devices
# `<Variable>.Srows`.
_KEYS = (KEY, "/rows", ".Srows")


def _id_in(report: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(report, r'(?s)^.*?"id": ?"([0-9a-f]*)".*$', r"\1")
