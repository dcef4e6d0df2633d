"""The model folder: models, their numbered versions, and the choice of those that should serve.

Every scan detects one of two layouts::

    DIR/1/saved_model.pb            DIR/ranker/1/saved_model.pb
    DIR/2/saved_model.pb            DIR/retriever/7/saved_model.pb
    one model                       several models, named by their folders
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...errors import StartError
from ...settings import Settings

_NUMBER = re.compile(r"[0-9]{1,19}")
_MODEL_FILE = "saved_model.pb"
# Python reads bytes of a name that are no UTF-8 as these characters.
_NO_UTF8 = re.compile("[\ud800-\udfff]")

Versions = Mapping[int, Path]


@dataclasses.dataclass(frozen=True)
class ModelFolder:
    """A folder of models.

    Attributes:
        path: The folder.
        model_name: The model's name if the folder holds one model; None for the folder's name.
    """

    path: Path
    model_name: str | None = None

    @property
    def name(self) -> str:
        """The model's name if the folder holds one model."""
        # A link gives its own name, because its target may change.
        own = Path(os.path.abspath(self.path)).name  # noqa: PTH100
        return self.model_name or own or "default"

    def check(self) -> None:
        """Raises `StartError` if the folder can never be served in its present state."""
        if not self.path.exists():
            raise StartError(
                f"The model folder must exist. Received: --model-dir={self.path}. "
                "Give the folder that holds the numbered versions, or create it first."
            )
        if not self.path.is_dir():
            raise StartError(
                f"The model folder must be a folder. Received: --model-dir={self.path}. "
                "Give the folder that holds the numbered versions."
            )
        if (self.path / _MODEL_FILE).exists():
            parent = "its parent folder" if _NUMBER.fullmatch(self.path.name) else "that folder"
            raise StartError(
                "The model folder must hold numbered versions, but it is itself a SavedModel. "
                f"Received: --model-dir={self.path}. Put the model in a numbered folder, e.g. "
                f"{self.path.parent / 'model' / '1'}, and give {parent}."
            )

    def scan(self) -> dict[str, Versions]:
        """Returns the complete versions of every model.

        Omits a version folder without `saved_model.pb`: somebody is still writing it. Lists a model
        without versions as an empty model. Omits a folder whose name is no UTF-8, and a folder
        that the gateway may not read, such as `lost+found` of a volume.

        Raises:
            OSError: The folder cannot be read.
        """
        numbered = _numbered_folders(self.path)
        if numbered or self.model_name is not None:
            return {self.name: _complete(numbered)}
        models = {}
        for folder in sorted(self.path.iterdir()):
            name = folder.name
            if name.startswith(".") or _NO_UTF8.search(name):
                continue
            with contextlib.suppress(PermissionError):
                if folder.is_dir() and (versions := _numbered_folders(folder)):
                    models[name] = _complete(versions)
        return models


def folder_of(settings: Settings) -> ModelFolder:
    """Returns the model folder that the settings name."""
    assert settings.model_dir is not None
    return ModelFolder(settings.model_dir, settings.model_name)


def found_models(settings: Settings) -> Mapping[str, Versions]:
    """Returns the models in the model folder; none if model servers run the models."""
    if settings.engine != "embedded":
        return {}
    try:
        return folder_of(settings).scan()
    except OSError:
        return {}


def _numbered_folders(path: Path) -> dict[int, Path]:
    return {
        int(child.name): child
        for child in sorted(path.iterdir())
        if _NUMBER.fullmatch(child.name) and int(child.name) < 2**63 and child.is_dir()
    }


def _complete(folders: Versions) -> Versions:
    return {number: path for number, path in folders.items() if _has_model(path)}


def _has_model(path: Path) -> bool:
    try:
        return (path / _MODEL_FILE).is_file()
    except PermissionError:
        return True  # loading it fails and says why


def fingerprint(path: Path) -> int:
    """Returns a number that changes when any file of a version changes.

    If it changed, a version that failed to load may load now, for example because a copy is
    complete.
    """
    entries = []
    for file in sorted(path.rglob("*")):
        try:
            status = file.stat()
        except OSError:  # it has gone, or is a link to itself
            continue
        entries.append((str(file), status.st_size, status.st_mtime_ns))
    return hash(tuple(entries))


@dataclasses.dataclass(frozen=True)
class VersionPolicy:
    """Chooses the newest versions, all versions, or a list of numbers.

    Attributes:
        count: The number of newest versions; None for all.
        numbers: Only these versions, if given.
    """

    count: int | None = 1
    numbers: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> "VersionPolicy":
        """Reads the setting: `latest`, `latest:N`, `all`, or numbers as in `1,3`.

        Example:
            >>> VersionPolicy.parse("latest:2").count
            2
        """
        if text == "all":
            return cls(None)
        if text.startswith("latest"):
            return cls(int(text.partition(":")[2] or 1))
        return cls(None, frozenset(int(number) for number in text.split(",")))

    def candidates(self, versions: Iterable[int]) -> list[int]:
        """Returns the versions to try, best first. The first `count` that load should serve."""
        allowed = (v for v in versions if self.numbers is None or v in self.numbers)
        return sorted(allowed, reverse=True)
