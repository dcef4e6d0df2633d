"""Finds the tables' files at the path of a checkpoint of any kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import received
from de_core.checkpoint import manifest, reference, tfra_refusal
from de_core.checkpoint.saved_files import own_entries, own_files
from de_core.snapshot import chain_file
from de_core.snapshot.file import about
from de_core.tables.served_copy import SUFFIX

# `append_to_file` adds the file's id and the part's number to a file's name.
_PART = re.compile(rf"\.([0-9a-f]{{12}})\.part-(\d+)(?={re.escape(SUFFIX)}$)")


def tables_in(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Returns the files of each table in a checkpoint, each base before its deltas.

    Args:
        path: A directory that `de.checkpoint.save` wrote; a prefix of a TensorFlow checkpoint; a
            directory of several of these, for the newest complete one; an exported or published
            version; a snapshot file; or a directory of snapshot files. From a directory of
            `save_to_file_system`, the newest save of each Variable is read.

    Raises:
        tf.errors.NotFoundError: There is no such checkpoint, or a file is missing.
        tf.errors.DataLossError: The files were not saved together.
        TypeError: `path` is None.
        ValueError: Several tables have the same name or file names and cannot be distinguished.
    """
    if path is None:
        raise TypeError(
            "A checkpoint's path must not be None. `de.checkpoint.latest` returns None for a "
            f"directory that holds no whole one. {received(path=path)} Check for None first."
        )
    path = os.fspath(path).rstrip("/")
    if tf.io.gfile.exists(path + ".index"):
        tfra_refusal.refuse(path)
        return _by_variable(reference.read(path).values())
    if not tf.io.gfile.exists(path):
        raise tf.errors.NotFoundError(
            None, None, f"The checkpoint must exist. Received: path={path!r}."
        )
    if not tf.io.gfile.isdir(path):
        return _by_table([[path]])
    if manifest.exists(path):
        return _of_manifest(path)
    assets = sorted(_matching(path, f"assets/*{chain_file.SUFFIX}"))
    links = {paths.base_name(asset): chain_file.read(asset) for asset in assets}
    if links:
        chain_file.check_manifest(path, links)
        chains: list[list[str]] = []
        for chain in links.values():
            chains.append([paths.join(paths.folder_of(assets[0]), link.name) for link in chain])
            for file, link in zip(chains[-1], chain, strict=True):
                reference.check(file, link.identity)
        return _by_table(chains, exported=True)
    for folder in (path, paths.join(path, "assets")):
        files = in_order(_matching(folder, f"*{SUFFIX}"))
        if files:
            found = _by_table(([file] for file in files), exported=folder != path)
            return {name: _of_newest_save(name, folder, each) for name, each in found.items()}
    newest = latest(path)
    if newest is None:
        raise tf.errors.NotFoundError(
            None, None, f"The directory must contain a whole checkpoint. Received: path={path!r}."
        )
    return tables_in(newest)


def latest(directory: str | os.PathLike[str]) -> str | None:
    """Returns the newest complete checkpoint in a directory, or None.

    A checkpoint is complete if its manifest or index exists, which is written last, and all files
    that the manifest or index names exist.

    Args:
        directory: A directory with subdirectories written by `de.checkpoint.save`, or with
            checkpoints written by TensorFlow or a `de.checkpoint.Manager`.

    Returns:
        A directory or a prefix.

    Example:
    >>> import tempfile
    >>> latest(tempfile.mkdtemp()) is None
    True
    """
    directory = os.fspath(directory)
    folders = {paths.folder_of(each): each for each in _matching(directory, f"*/{manifest.NAME}")}
    prefixes = {each.removesuffix(".index"): each for each in _matching(directory, "*.index")}
    found = [
        (tf.io.gfile.stat(marker).mtime_nsec, _number(path), path)
        for path, marker in [*folders.items(), *prefixes.items()]
    ]
    candidates = [path for _, _, path in sorted(found, reverse=True)]
    # Prefer the checkpoint that TensorFlow recorded over file times, which copying changes. A save
    # that was killed before it was recorded may have a higher number.
    recorded = tf.train.latest_checkpoint(directory)
    if recorded in candidates:
        newer = candidates[: candidates.index(recorded)]
        older = {path for path in prefixes if _number(path) <= _number(recorded)}
        candidates = [*(path for path in newer if path not in older), recorded, *candidates]
    return next(filter(is_whole, candidates), None)


def in_order(files: Iterable[str]) -> list[str]:
    """Sorts files by name, each before the parts that `save_to_file_system` appended to it.

    If two files have a row for a key, the later file wins. Parts of a file that another save has
    replaced are left out: a killed process leaves them.

    Example:
    >>> in_order(["t.0123456789ab.part-000010.de", "t.0123456789ab.part-000009.de"])
    ['t.0123456789ab.part-000009.de', 't.0123456789ab.part-000010.de']
    """
    found = set(files)

    def is_left_over(path: str) -> bool:
        part, whole = _PART.search(path), _PART.sub("", path)
        return bool(part and whole in found and not about(whole)["id"].startswith(part[1]))

    def place(path: str) -> tuple[str, int, str]:
        part = _PART.search(path)
        return _PART.sub("", path), int(part[2]) if part else 0, path

    return sorted((path for path in found if not is_left_over(path)), key=place)


def _of_newest_save(name: str, folder: str, files: list[str]) -> list[str]:
    """Leaves out a table's files of earlier saves by other numbers of processes or shards.

    The newest save must be whole; see `own_files`. Files of other names are kept as they are.
    """
    own = {match[0] for match in own_entries(name, folder)} & set(map(paths.base_name, files))
    newest = own_files(name, folder)[0] if own else []
    if own and not newest:
        raise tf.errors.NotFoundError(
            None, None, f"The file of appended parts must be there. Received: {sorted(own)} alone."
        )
    older = own - set(map(paths.base_name, newest))
    return [path for path in files if paths.base_name(path) not in older]


def _matching(folder: str, pattern: str) -> list[str]:
    return list(tf.io.gfile.glob(paths.join(paths.literal(folder), pattern)))


def _number(path: str) -> int:
    """Returns the number at the end of a checkpoint's name, or -1."""
    digits = paths.base_name(path).rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def is_whole(path: str) -> bool:
    """Returns whether a checkpoint's manifest or index can be read, and all its files exist."""
    try:
        if manifest.exists(path):
            _of_manifest(path)
        else:
            reference.read(path)
    except tf.errors.OpError:
        return False
    return True


def _of_manifest(folder: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, files in manifest.read(folder).items():
        for file in files:
            path = paths.join(folder, file["file"])
            if not tf.io.gfile.exists(path):
                raise tf.errors.NotFoundError(
                    None,
                    None,
                    "The files that a manifest names must lie beside it. "
                    f"Received: no file {path!r}. Copy the whole directory.",
                )
            reference.check(path, file["id"])
            found.setdefault(name, []).append(path)
    return found


def _by_variable(groups: Iterable[list[str]]) -> dict[str, list[str]]:
    """Groups files by Variable.

    If several Variables share a name, each is called `name (number)`.
    """
    named: dict[str, list[list[str]]] = {}
    for files in groups:
        name = str(about(files[0])["metadata"].get("table", ""))
        named.setdefault(name, []).append(files)
    return {
        name if len(all_files) == 1 else f"{name} ({number})": files
        for name, all_files in named.items()
        for number, files in enumerate(all_files, 1)
    }


def _by_table(groups: Iterable[list[str]], exported: bool = False) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    shards: dict[tuple[str, str], str] = {}
    for files in groups:
        metadata = about(files[0])["metadata"]
        name = str(metadata.get("table", ""))
        shard = (name, str(metadata.get("shard", "")))
        if exported and shard in shards:
            raise ValueError(
                "The tables of an exported version must have distinct names to be read by "
                f"name. Received: two of name {name!r}, {shards[shard]!r} and {files[0]!r}."
            )
        shards[shard] = files[0]
        found.setdefault(name, []).extend(files)
    for name, files in found.items() if exported else ():
        counts = [shard.partition("/")[2] or "1" for each, shard in shards if each == name]
        if {*counts} != {str(len(counts))}:
            raise tf.errors.NotFoundError(
                None,
                None,
                "The files of all shards of an exported table must be there. Received: "
                f"{len(counts)} of {counts[0]} shards of table {name!r}, {files}. "
                "Copy the whole version.",
            )
    return found
