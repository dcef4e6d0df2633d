"""The snapshot files inside a Keras file: `.keras`, a zip archive, or `.weights.h5`."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from de_core_cli.library import CommandError

_WEIGHTS = "model.weights.h5"
#: Matches a dataset's name. A layer writes each shard of its table as a series of uint8 datasets,
#: numbered by `piece`.
_PIECE = re.compile(r"(.*?)/?(?:vars/)?table_(\d+)_piece_(\d+)")


@contextlib.contextmanager
def opened(path: str) -> Iterator[Any]:
    """Yields the open HDF5 file of a Keras file.

    Raises:
        CommandError: The file is damaged, or h5py is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise CommandError(f"Reading {path!r} needs h5py. Run: pip install h5py") from None
    with contextlib.ExitStack() as stack:
        try:
            if zipfile.is_zipfile(path):
                archive = stack.enter_context(zipfile.ZipFile(path))
                file: Any = stack.enter_context(archive.open(_WEIGHTS))
            else:
                file = path
            made = stack.enter_context(h5py.File(file))
            shards(made)  # h5py notices most damage only when it visits the objects
        except (OSError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise CommandError(
                f"A Keras file must be whole, with {_WEIGHTS} in it. Received: {path!r}: {error}."
            ) from None
        yield made


def shards(file: Any) -> dict[str, list[Any]]:
    """Returns the datasets of each shard in order. The keys name the layer and the shard."""
    pieces: dict[tuple[str, int], dict[int, Any]] = {}

    def visit(name: str, item: Any) -> None:
        match = _PIECE.fullmatch(name)
        if match is not None:
            pieces.setdefault((match[1], int(match[2])), {})[int(match[3])] = item

    file.visititems(visit)
    return {
        f"{layer}/table_{shard}": [items[number] for number in sorted(items)]
        for (layer, shard), items in sorted(pieces.items())
    }


def extract(datasets: list[Any], target: pathlib.Path) -> None:
    """Writes a shard's snapshot file, a piece at a time."""
    with target.open("wb") as file:
        for each in datasets:
            file.write(each[...].tobytes())


def rewrite(path: str, target: pathlib.Path, files: Mapping[str, pathlib.Path]) -> None:
    """Copies a Keras file with other snapshot files inside. The rest stays the same.

    Writes a new file, because HDF5 keeps the bytes of deleted datasets in the file.

    Args:
        path: The Keras file.
        target: The new file.
        files: The new snapshot files, by the keys of `shards`.
    """
    import h5py
    import numpy as np

    weights = target.with_name(f"{target.name}.h5")
    with opened(path) as old, h5py.File(weights, "w") as new:
        _copy_group(old, new)
        for name, datasets in shards(old).items():
            data = np.fromfile(files[name], np.uint8)
            first = 0
            for number, each in enumerate(datasets):
                last = number == len(datasets) - 1
                end = data.size if last else min(data.size, first + int(each.shape[0]))
                new.create_dataset(each.name, data=data[first:end])
                first = end
    if not zipfile.is_zipfile(path):
        weights.replace(target)
        return
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as made:
        for item in source.infolist():
            if item.filename != _WEIGHTS:
                made.writestr(item, source.read(item))
        with weights.open("rb") as file, made.open(_WEIGHTS, "w", force_zip64=True) as entry:
            shutil.copyfileobj(file, entry)
    weights.unlink()


def _copy_group(old: Any, new: Any) -> None:
    for name, value in old.attrs.items():
        new.attrs[name] = value
    for name, item in old.items():
        if hasattr(item, "items"):
            _copy_group(item, new.create_group(name))
        elif not _PIECE.fullmatch(item.name.lstrip("/")):
            old.copy(name, new)
