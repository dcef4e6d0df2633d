"""Finds the snapshot files at a path, and their headers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence

from de_core_cli import header, keras_file, library
from de_core_cli.library import CommandError

_HDF5 = b"\x89HDF\r\n\x1a\n"
# Files of `save_to_file_system`. Only the library knows which of them count, and in which order.
_OF_A_SAVE = re.compile(r"_mht_\d+of\d+|\.part-\d+\.de$")


@dataclasses.dataclass(frozen=True)
class Source:
    """A snapshot file, alone or inside a Keras file.

    Attributes:
        path: The file's path.
        inside: The key in `keras_file.shards`, if the snapshot file is inside a Keras file; else
            empty.
    """

    path: str
    inside: str = ""

    @property
    def name(self) -> str:
        """The name for people."""
        return f"{self.path}:{self.inside}" if self.inside else self.path

    @property
    def table(self) -> str:
        """The name of the table whose rows the file holds."""
        return str(self.header().info["metadata"].get("table", ""))

    def header(self) -> header.Header:
        """Reads the header.

        Raises:
            CommandError: The header is damaged.
        """
        if self.inside:
            with keras_file.opened(self.path) as file:
                datasets = keras_file.shards(file)[self.inside]
                return header.read(*keras_file.reader(datasets), self.name)
        if "://" in self.path:
            library.load()
            from de_core.snapshot.file import about

            return header.Header(about(self.path), {})
        with pathlib.Path(self.path).open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size

            def read_at(offset: int, count: int) -> bytes:
                opened.seek(offset)
                return opened.read(count)

            return header.read(read_at, size, self.path)


def find(path: str, checked: bool = False) -> list[Source]:
    """Returns the snapshot files at a path, each base before its deltas.

    Args:
        path: A file, a checkpoint or a version.
        checked: True to check that the files of a checkpoint belong together. Needs TensorFlow.

    Raises:
        CommandError: There is no such file or checkpoint.
    """
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
        return _of_file(path)
    found = [] if checked or not local.is_dir() else _of_directory(local)
    if not found and local.is_dir() and _newest(local) is not None:
        return find(str(_newest(local)), checked)
    if found:
        return [Source(str(each)) for each in found]
    library.load()
    from de_core.checkpoint.sources import tables_in

    return [Source(each) for files in tables_in(path).values() for each in files]


def _of_file(path: str) -> list[Source]:
    with pathlib.Path(path).open("rb") as file:
        start = file.read(8)
    if start != _HDF5 and not zipfile.is_zipfile(path):
        return [Source(path)]
    with keras_file.opened(path) as opened:
        found = [Source(path, inside) for inside in keras_file.shards(opened)]
    if not found:
        raise CommandError(f"The Keras file must hold a table. Received: {path!r} without one.")
    return found


def _of_directory(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns a directory's snapshot files in order.

    Returns [] if only `de_core` can find the files, or can name the damage.
    """
    manifest, assets = folder / "MANIFEST", folder / "assets"
    if manifest.exists():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            outer = json.loads(manifest.read_text("utf-8"))
            if outer["checksum"] == zlib.crc32(outer["body"].encode()):
                tables = json.loads(outer["body"])["tables"]
                return [folder / each["file"] for files in tables.values() for each in files]
        return []
    chains = [_chain(each) for each in sorted(assets.glob("*.chain"))]
    if chains:
        return [assets / name for names in chains for name in names] if all(chains) else []
    files = sorted(folder.glob("*.de"))
    if any(_OF_A_SAVE.search(each.name) for each in files):
        return []
    return files or sorted(assets.glob("*.de"))


def _chain(path: pathlib.Path) -> list[str]:
    """Returns the names of the snapshot files in a chain file; [] if the chain file is damaged."""
    first, *lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    links, end = lines[:-2], lines[-2:]
    if first != "de_core chain 1" or end != [f"end {len(links)}", ""]:
        return []
    return [link.partition(" ")[2] for link in links]


def _newest(folder: pathlib.Path) -> pathlib.Path | None:
    versions = [each for each in folder.iterdir() if each.name.isdecimal()]
    versions = [each for each in versions if (each / "saved_model.pb").is_file()]
    return max(versions, key=lambda each: int(each.name), default=None)


def chosen(paths: Sequence[str], table: str | None) -> list[Source]:
    """Returns the files at several paths, or only the files of one table; see `of_table`."""
    return of_table([each for path in paths for each in find(path)], table)


def of_table(found: list[Source], table: str | None) -> list[Source]:
    """Returns the files of one table; all files if `table` is None.

    Raises:
        CommandError: No file holds the table.
    """
    if table is None:
        return found
    kept = [each for each in found if each.table == table]
    if not kept:
        raise CommandError(
            f"The files must hold the table. Received: --table {table!r}. They hold: "
            f"{', '.join(sorted({each.table for each in found}))}."
        )
    return kept


@contextlib.contextmanager
def on_disk(sources: Sequence[Source]) -> Iterator[list[str]]:
    """Yields the files' paths. Files inside Keras files are extracted to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="de_core_") as folder:
        paths = []
        for number, source in enumerate(sources):
            paths.append(source.path)
            if source.inside:
                paths[-1] = str(pathlib.Path(folder) / f"{number}.de")
                with keras_file.opened(source.path) as file:
                    datasets = keras_file.shards(file)[source.inside]
                    keras_file.extract(datasets, pathlib.Path(paths[-1]))
        yield paths


def chains(sources: Sequence[Source]) -> list[list[int]]:
    """Returns the files' numbers, grouped: each file with the deltas that continue it."""
    found: list[list[int]] = []
    last = ""
    for number, source in enumerate(sources):
        info = source.header().info
        if last and last == info["parent"]:
            found[-1].append(number)
        else:
            found.append([number])
        last = info["id"]
    return found


@contextlib.contextmanager
def whole(sources: Sequence[Source]) -> Iterator[list[tuple[str, str]]]:
    """Yields the name and path of each file. A base and its deltas become one merged file.

    A delta without its base stays as it is.
    """
    with on_disk(sources) as paths, tempfile.TemporaryDirectory(prefix="de_core_") as folder:
        found = []
        for chain in chains(sources):
            path = paths[chain[0]]
            if len(chain) > 1:
                library.load()
                from de_core.base.ops import library as ops

                path = str(pathlib.Path(folder) / f"{chain[0]}.de")
                ops.de_snapshot_compact([paths[each] for each in chain], path)
            found.append((sources[chain[-1]].name, path))
        yield found
