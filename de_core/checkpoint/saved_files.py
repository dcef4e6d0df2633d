"""Finds the files that `save_to_file_system` wrote for a Variable in a folder."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import tensorflow as tf

from de_core.base import paths
from de_core.snapshot.file import about
from de_core.tables.served_copy import SUFFIX, file_stem


def own_entries(name: str, folder: str) -> list[re.Match[str]]:
    """Returns matches of the names of a Variable's files in a folder.

    Their groups are the shard `i` of `n`, for one of several processes also its `rank` and the
    number of processes `size`, and for an appended part also `part`.
    """
    stem, suffix = re.escape(file_stem(name)), re.escape(SUFFIX)
    process = r"(?:_rank(?P<rank>\d+)_size(?P<size>\d+))?"
    part = r"(?P<part>\.[0-9a-f]+\.part-\d+)?"
    pattern = re.compile(rf"{stem}_mht_(?P<i>\d+)of(?P<n>\d+){process}{part}{suffix}")
    entries = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return [match for match in map(pattern.fullmatch, entries) if match]


def process_of(match: re.Match[str]) -> tuple[int, int]:
    """Returns how many processes saved together, and the number of the one that wrote a file."""
    return int(match["size"] or 1), int(match["rank"] or 0)


def check_own(name: str, folder: str) -> None:
    """Raises if a folder's files with a Variable's file names belong to another Variable.

    Two tables have equal file names if their names differ only in characters such as "/", which
    file names cannot contain.
    """
    for match in own_entries(name, folder):
        if match["part"]:  # it belongs to the file that it was appended to
            continue
        path = paths.join(folder, match[0])
        with contextlib.suppress(tf.errors.OpError):  # the file is missing or unreadable
            found = str(about(path)["metadata"].get("table", name))
            if found != name:
                raise ValueError(
                    "The file names of two tables must differ. Characters that file names cannot "
                    f"contain are replaced. Received: {path!r} of table {found!r} for table "
                    f"{name!r}. To keep both, use two directories, or `file_name_list`."
                )


def own_files(
    name: str, folder: str, proc_size: int = 0, proc_rank: int = 0
) -> tuple[list[str], int]:
    """Returns the files to load, and the number of processes that saved them.

    They are the files that this process saved, of `proc_size` processes, or else all files of the
    Variable's newest save. A `proc_size` of 0 always chooses the newest save. The files are
    followed by the parts appended to them.

    Raises:
        ValueError: The files belong to another Variable.
        tf.errors.NotFoundError: Some files of the save are missing.
        tf.errors.DataLossError: A file is damaged, or the files are of several saves.
    """
    check_own(name, folder)
    matches = [match for match in own_entries(name, folder) if not match["part"]]
    own_process = [match for match in matches if process_of(match) == (proc_size, proc_rank)]
    found: list[tuple[re.Match[str], str, dict[str, Any]]] = []
    for match in own_process or matches:
        path = paths.join(folder, match[0])
        found.append((match, path, about(path)))
    if not found:
        return [], proc_size

    def only_newest(what: str, files: list[Any]) -> list[Any]:
        newest = max(files, key=lambda file: int(file[2]["created_micros"]))
        return [file for file in files if file[0][what] == newest[0][what]]

    if not own_process:
        found = only_newest("size", found)
    saved_by, _ = process_of(found[0][0])
    own: list[str] = []
    for rank in [proc_rank] if saved_by == proc_size else range(saved_by):
        files = [file for file in found if process_of(file[0])[1] == rank]
        if not files:
            raise tf.errors.NotFoundError(
                None,
                None,
                f"The files of all {saved_by} processes that saved {name!r} must be in the "
                f"directory. Received: no file of process {rank} in {folder!r}.",
            )
        files = sorted(only_newest("n", files), key=lambda file: int(file[0]["i"]))
        count = int(files[0][0]["n"])
        missing = sorted(set(range(1, count + 1)) - {int(match["i"]) for match, _, _ in files})
        if missing:
            raise tf.errors.NotFoundError(
                None,
                None,
                f"The files of all {count} shards of {name!r} must be in the directory. "
                f"Received: no file of number {missing} in {folder!r}.",
            )
        # Each process must have written all its shards in one save.
        if len({info["metadata"].get("save", "") for _, _, info in files}) > 1:
            process = re.sub(r"_mht_\d+of", "_mht_*of", files[0][1])
            raise tf.errors.DataLossError(
                None,
                None,
                "The files of a table's shards must have been saved together. Received: files of "
                f"several saves as {process}.",
            )
        own += [part for _, path, _ in files for part in parts_of(path)]
    return own, saved_by


def parts_of(path: str, of_any_id: bool = False) -> list[str]:
    """Returns a file and the files that were appended to it ("parts"), in order.

    A part's name contains the id of the first file. So if a save replaces that file, the old parts
    are not read with the new file. With `of_any_id` they are returned too.
    """
    whole = path if path.endswith(SUFFIX) else path + SUFFIX
    if not tf.io.gfile.exists(whole):
        raise tf.errors.NotFoundError(
            None, None, f"The file must exist; save_to_file_system writes it. Received: {whole!r}."
        )
    if of_any_id:
        stem = f"{paths.literal(whole.removesuffix(SUFFIX))}.{'[0-9a-f]' * 12}.part-"
    else:
        stem = paths.literal(part_stem(whole))
    return [whole, *sorted(tf.io.gfile.glob(f"{stem}*{SUFFIX}"))]


def part_stem(whole: str) -> str:
    """Returns the beginning of the names of the files that are appended to a file."""
    return f"{whole.removesuffix(SUFFIX)}.{about(whole)['id'][:12]}.part-"
