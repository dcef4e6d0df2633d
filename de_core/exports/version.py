"""The numbered version directories of a model. Each appears atomically.

A published version has chain files in its assets; see `de_core/snapshot/chain_file.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from de_core.base import paths
from de_core.base.checks import check_integer, received
from de_core.exports import served_rows
from de_core.snapshot import chain_file
from de_core.snapshot.chain_file import Link

#: Subdirectory of a version. TensorFlow Serving reads warm-up requests there and ignores all other
#: files in it.
EXTRA = "assets.extra"
_REPORT = "de_report.json"
#: Prefix of directories that are being published or deleted. No server loads them.
WORK_PREFIX = ".publish-"
_LOCK = ".publish.lock"


class Version(str):
    """The path of a version directory, a string.

    Attributes:
        report: Describes the version. `tables` has for each table `rows`, `tombstones`, `bytes`
            and, if values are stored as another dtype, `max_error` and `mean_error` per element.
            With a sample, `scores` has for each output the difference to the live model's answers.
    """

    report: dict[str, Any]

    def __new__(cls, path: str, report: dict[str, Any]) -> Version:
        """Makes the string from the directory's path."""
        made = super().__new__(cls, path)
        made.report = report
        return made


def local(path: str | os.PathLike[str], name: str) -> pathlib.Path:
    """Returns the path of a directory. It must be on this machine, where a rename is atomic.

    Args:
        path: The directory.
        name: The argument's name, for the error.

    Raises:
        ValueError: The path is on another TensorFlow file system, or TensorFlow cannot read it.
    """
    text = os.fspath(path).removeprefix("file://")
    if "://" in text:
        raise ValueError(
            f"`{name}` must be a directory of this machine. {received(**{name: text})} Write it "
            "there and copy the finished version with `tf.io.gfile`."
        )
    paths.check_readable(text, name)
    return pathlib.Path(text)


def numbers_in(root: pathlib.Path) -> list[int]:
    """Returns the numbers of the versions in a directory, the oldest first."""
    if not root.is_dir():
        return []
    numbers = sorted(int(each.name) for each in root.iterdir() if each.name.isdecimal())
    return [number for number in numbers if number < 2**63]  # servers read no others


def next_in(root: pathlib.Path, version: int | None) -> pathlib.Path:
    """Returns the directory of the next version, and creates its parent.

    Args:
        root: The directory of the versions.
        version: The version's number; None for the newest number plus one.

    Raises:
        TypeError: `version` is not an integer.
        ValueError: `version` is not from 1 to 2**63 - 1. Servers read no other numbers.
        FileExistsError: The version exists already.
    """
    if version is None:
        version = max(numbers_in(root), default=0) + 1
    check_integer("version", version, 1, 2**63 - 1)
    target = root / str(version)
    if target.exists():
        raise FileExistsError(
            f"A version directory must not exist yet. Received: {target}. Pass another `version`, "
            "or None for the next one."
        )
    root.mkdir(parents=True, exist_ok=True)
    return target


@contextlib.contextmanager
def being_written(target: pathlib.Path, prefix: str = ".export-") -> Iterator[pathlib.Path]:
    """Yields a directory that is renamed to `target`, or removed if an exception is raised.

    Args:
        target: A version directory that does not exist.
        prefix: Prefix of the temporary directory's name.
    """
    # The temporary directory is beside the versions, so that it can be renamed. Its name is not a
    # number, so that no server loads it.
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{prefix}{target.name}-", dir=target.parent))
    try:
        made = work / "model"
        made.mkdir()
        yield made
        for folder, _, names in os.walk(made):
            for name in names:
                file = os.path.join(folder, name)  # noqa: PTH118  as `os.walk` gives it
                if os.lstat(file).st_nlink == 1:  # a linked file was synced with an earlier version
                    paths.sync(file)
            paths.sync(folder)
        made.rename(target)
        paths.sync(str(target.parent))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_report(folder: pathlib.Path, report: dict[str, Any]) -> None:
    """Writes a report into a version directory.

    JSON has no infinities and no NaN, so they become the strings "inf", "-inf" and "nan".
    """
    finite = json.loads(json.dumps(report), parse_constant=lambda name: str(float(name)))
    (folder / EXTRA).mkdir(exist_ok=True)
    (folder / EXTRA / _REPORT).write_text(json.dumps(finite, indent=1) + "\n", "utf-8")


def saved_model(folder: str) -> Any:
    """Reads the saved_model.pb in the directory of a SavedModel.

    Raises:
        tf.errors.DataLossError: The file is damaged.
    """
    message = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    path = paths.join(folder, "saved_model.pb")
    with contextlib.suppress(DecodeError), tf.io.gfile.GFile(path, "rb") as file:
        message.ParseFromString(file.read())
        if message.meta_graphs:
            return message
    raise tf.errors.DataLossError(
        None,
        None,
        f"A saved_model.pb must be whole. Received: damaged file {path!r}. Export the model again.",
    )


def published_in(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the directories of the published versions in a directory, the oldest first.

    No file is read, so a damaged version is found too. See `chain_file.check_manifest`.
    """
    return [
        path
        for path in (root / str(number) for number in numbers_in(root))
        if any(path.glob(f"assets/*{chain_file.SUFFIX}")) and (path / "saved_model.pb").is_file()
    ]


def chains_of(path: pathlib.Path) -> dict[str, list[Link]]:
    """Returns a version's chains: for each chain file, by its name, the table's snapshot files.

    Raises:
        tf.errors.DataLossError: A chain file is damaged.
    """
    assets = sorted(path.glob(f"assets/*{chain_file.SUFFIX}"))
    return {asset.name: chain_file.read(asset) for asset in assets}


def full_is_due(
    path: pathlib.Path, chains: Iterable[list[Link]], full_every: int, full_part: float
) -> bool:
    """Returns whether the version after another one must be full.

    Args:
        path: The other version's directory.
        chains: For each shard, the other version's base and deltas.
        full_every: Write a full version after this many versions.
        full_part: Write a full version once deltas exceed this fraction of the bases' bytes, all
            tables together.
    """
    sizes = [[(path / "assets" / link.name).stat().st_size for link in each] for each in chains]
    deltas = sum(sum(each[1:]) for each in sizes)
    return max(map(len, sizes)) >= full_every or deltas > full_part * sum(e[0] for e in sizes)


@contextlib.contextmanager
def alone_in(root: pathlib.Path) -> Iterator[None]:
    """Keeps other publishers out, and removes leftovers of a killed publisher."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in root.glob(f"{WORK_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def write_chains(
    folder: pathlib.Path,
    chains: Mapping[str, list[Link]],
    reports: Mapping[str, list[dict[str, Any]]],
    previous: int | None,
) -> dict[str, Any]:
    """Writes a version's chain files, its manifest and its report. Returns the report.

    Args:
        folder: The version's directory, with all other files.
        chains: For each chain file, by its name, the snapshot files of the table.
        reports: For each table, the reports of the files that were written.
        previous: Number of the version that a delta follows; None for a full version.
    """
    for name, links in chains.items():
        chain_file.write(folder / "assets" / name, links)
    chain_file.write_manifest(folder, chains)
    report = {
        "kind": "full" if previous is None else "delta",
        "previous": previous,
        "tables": {name: served_rows.total(each) for name, each in reports.items()},
    }
    write_report(folder, report)
    return report


def prune(root: pathlib.Path, count: int | None) -> None:
    """Deletes all published versions except the newest `count`. Keeps other directories.

    A version has hard links to all files that it needs, so the remaining versions lose nothing.

    Args:
        root: The directory. Nobody else may publish into it meanwhile.
        count: Number of versions to keep; None for all.
    """
    if count is None or len(numbers_in(root)) <= count:
        return
    for each in published_in(root)[:-count]:
        gone = root / f"{WORK_PREFIX}{each.name}-deleted"
        each.rename(gone)  # atomic, so no server sees a partial version
        shutil.rmtree(gone, ignore_errors=True)


def link(source: pathlib.Path, target: pathlib.Path) -> None:
    """Hard-links a file, or copies it if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        shutil.copyfile(source, target)
