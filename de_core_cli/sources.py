"""Finds the snapshot files at the paths of a command."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from de_core_cli import keras_file, library
from de_core_cli.library import CommandError

_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclasses.dataclass(frozen=True)
class Source:
    """A snapshot file, alone or inside a Keras file.

    Attributes:
        path: The snapshot file; a copy of one inside a Keras file.
        name: The name for people.
        inside: The key in `keras_file.shards`, if the snapshot file is inside a Keras file; else
            empty.
        checkpoint_name: The table's name in the checkpoint that names the file; else empty.
    """

    path: str
    name: str
    inside: str = ""
    checkpoint_name: str = ""

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """The file's description; see the op DeSnapshotInfo.

        Raises:
            tf.errors.OpError: The file is no snapshot file, or its header is damaged.
        """
        from de_core.snapshot.file import about

        return about(self.path)

    @property
    def own_name(self) -> str:
        """The table's name in the file."""
        return str(self.info["metadata"].get("table", ""))

    @property
    def table(self) -> str:
        """The table's name in the checkpoint, or else in the file."""
        return self.checkpoint_name or self.own_name


@contextlib.contextmanager
def opened(paths: Sequence[str], table: str | None = None) -> Iterator[list[Source]]:
    """Yields the snapshot files at several paths, or only the files of one table; see `of_table`.

    Each base comes before its deltas. Files inside Keras files are copied to a temporary folder.

    Args:
        paths: Files, checkpoints or versions.
        table: The table's name; None for all.

    Raises:
        CommandError: There is no such file, checkpoint or table.
        tf.errors.OpError: A checkpoint's files do not belong together.
    """
    with tempfile.TemporaryDirectory(prefix="de_core_") as folder:
        found = [each for path in paths for each in _find(path, folder)]
        library.load()
        yield of_table(found, table)


def _find(path: str, folder: str) -> list[Source]:
    if not path.strip("/"):
        raise CommandError(
            "The path must be a file, a directory of files or a checkpoint's prefix. "
            f"Received: {path!r}."
        )
    local = pathlib.Path(path)
    if "://" not in path and not local.exists() and not pathlib.Path(f"{path}.index").exists():
        raise CommandError(
            f"The path must be a file, a directory or a checkpoint's prefix. Received: {path!r}, "
            "which does not exist."
        )
    if local.is_file():
        return _of_file(path, folder)
    if local.is_dir():
        versions = [each for each in local.iterdir() if each.name.isdecimal()]
        versions = [each for each in versions if (each / "saved_model.pb").is_file()]
        path = str(max(versions, key=lambda each: int(each.name), default=local))
    library.load()
    from de_core.checkpoint.sources import tables_in

    tables = tables_in(path).items()
    return [Source(each, each, checkpoint_name=name) for name, files in tables for each in files]


def _of_file(path: str, folder: str) -> list[Source]:
    with pathlib.Path(path).open("rb") as file:
        start = file.read(8)
    if start != _HDF5 and not zipfile.is_zipfile(path):
        return [Source(path, path)]
    copies = pathlib.Path(tempfile.mkdtemp(dir=folder))
    found: list[Source] = []
    with keras_file.opened(path) as opened:
        for inside, datasets in keras_file.shards(opened).items():
            copy = copies / f"{len(found)}.de"
            keras_file.extract(datasets, copy)
            found.append(Source(str(copy), f"{path}:{inside}", inside))
    if not found:
        raise CommandError(f"The Keras file must hold a table. Received: {path!r} without one.")
    return found


def of_table(found: list[Source], table: str | None) -> list[Source]:
    """Returns the files of the table of a name, or else of the tables that have it in their files.

    If `table` is None, returns all files.

    Raises:
        CommandError: No file holds the table.
    """
    if table is None:
        return found
    kept = [each for each in found if each.table == table]
    kept = kept or [each for each in found if each.own_name == table]
    if not kept:
        raise CommandError(
            f"The files must hold the table. Received: --table {table!r}. They hold: "
            f"{', '.join(sorted({each.table for each in found}))}."
        )
    return kept


def chains(sources: Sequence[Source]) -> list[list[Source]]:
    """Returns the files, grouped: each with the deltas that continue it, or its appended parts."""
    found: list[list[Source]] = []
    for source in sources:
        if found and (
            found[-1][-1].info["id"] == source.info["parent"]
            or f".{found[-1][0].info['id'][:12]}.part-" in source.path
        ):
            found[-1].append(source)
        else:
            found.append([source])
    return found


@contextlib.contextmanager
def whole(paths: Sequence[str], table: str | None) -> Iterator[list[tuple[str, str]]]:
    """Yields the name and path of each file. Each of `chains` becomes one merged file.

    A delta without its base stays as it is. Takes the arguments of `opened`.
    """
    with opened(paths, table) as sources, tempfile.TemporaryDirectory(prefix="de_core_") as folder:
        found = []
        for number, chain in enumerate(chains(sources)):
            path = chain[0].path
            if len(chain) > 1:
                from de_core.base.ops import library as ops

                path = str(pathlib.Path(folder) / f"{number}.de")
                if chain[1].info["kind"] == "delta":
                    ops.de_snapshot_compact([each.path for each in chain], path)
                else:
                    without(chain, [], pathlib.Path(path))
            found.append((chain[-1].name, path))
        yield found


def without(
    chain: list[Source], keys: list[Any], target: pathlib.Path
) -> tuple[int, dict[str, Any]]:
    """Writes the last state of a chain's rows, without the rows of some keys, to one file.

    Returns:
        The number of removed rows, and the save's report.
    """
    import tensorflow as tf

    from de_core.base.ops import library as ops
    from de_core.snapshot.file import about, metadata_of, verify

    files = [each.path for each in chain]
    verify(files)
    info = chain[-1].info
    key_dtype = tf.as_dtype(info["key_dtype"])
    live = ops.de_table(
        anonymous=True,
        key_dtype=key_dtype,
        value_dtype=tf.as_dtype(info["reads_as"]),
        dim=info["dim"],
    )
    stored = "" if info["value_dtype"] == info["reads_as"] else info["value_dtype"]
    ops.de_table_restore(live, files, convert=bool(stored))
    before = int(ops.de_table_size(live))
    ops.de_table_erase(live, tf.constant(keys, key_dtype))
    report = ops.de_table_save(
        live,
        str(target),
        values_only=info["values_only"],
        store_as=stored,
        metadata=metadata_of(about(files[-1], own=True)),
    )
    gone = before - about(str(target), verified=True)["rows"]
    return gone, dict(json.loads(report.numpy()))
