"""Finds and prunes the published versions in a directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from de_core.exports import served_rows, version
from de_core.snapshot import chain_file
from de_core.snapshot.chain_file import Link

#: Prefix of directories that are being written or deleted. No server loads them.
WORK_PREFIX = ".publish-"
_LOCK = ".publish.lock"


def all_in(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the directories of the published versions in a directory, the oldest first.

    No file is read, so a damaged version is found too. See `chain_file.check_manifest`.
    """
    return [
        path
        for path in (root / str(number) for number in version.numbers_in(root))
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
    version.write_report(folder, report)
    return report


def prune(root: pathlib.Path, count: int | None) -> None:
    """Deletes all published versions except the newest `count`. Keeps other directories.

    A version has hard links to all files that it needs, so the remaining versions lose nothing.

    Args:
        root: The directory. Nobody else may publish into it meanwhile.
        count: Number of versions to keep; None for all.
    """
    if count is None or len(version.numbers_in(root)) <= count:
        return
    for each in all_in(root)[:-count]:
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
