"""The numbered version directories of a model. Each appears atomically."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from de_core.base import paths
from de_core.base.checks import received

#: Subdirectory of a version. TensorFlow Serving reads warm-up requests there and ignores all other
#: files in it.
EXTRA = "assets.extra"
_REPORT = "de_report.json"


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
    return sorted(int(each.name) for each in root.iterdir() if each.name.isdecimal())


def next_in(root: pathlib.Path, version: int | None) -> pathlib.Path:
    """Returns the directory of the next version, and creates its parent.

    Args:
        root: The directory of the versions.
        version: The version's number; None for the newest number plus one.

    Raises:
        ValueError: `version` is not a positive integer.
        FileExistsError: The version exists already.
    """
    if version is None:
        version = max(numbers_in(root), default=0) + 1
    elif isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"`version` must be a positive integer. {received(version=version)}")
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
