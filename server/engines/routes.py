"""What the operator decides about traffic: labels, a split between versions, what is drained."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class RoutesError(Exception):
    """A file of routes, or a list of labels, that cannot be used; the message says why."""


class Routes(msgspec.Struct, frozen=True):
    """The decisions; replaced as a whole, so that nobody sees half a change.

    Attributes:
        labels: By model, the version of each label.
        traffic: By model, the weight of each version (a number as a string) for requests
            that name no version.
        drained: Upstreams that get no requests.
        draining: Whether the gateway tells load balancers to look elsewhere.
    """

    labels: dict[str, dict[str, int]] = {}
    traffic: dict[str, dict[str, float]] = {}
    drained: list[str] = []
    draining: bool = False


def parse_labels(text: str, model: str | None) -> dict[str, dict[str, int]]:
    """Reads labels from a setting.

    Args:
        text: `stable=1,ranker:canary=2`.
        model: The model of labels that name none; None if they must.

    Raises:
        RoutesError: A part is not of that form.

    Example:
        >>> parse_labels("stable=1,other:canary=2", "ranker")
        {'ranker': {'stable': 1}, 'other': {'canary': 2}}
    """
    labels: dict[str, dict[str, int]] = {}
    for part in filter(None, text.split(",")):
        name, _, version = part.partition("=")
        owner, colon, label = name.rpartition(":")
        owner = owner if colon else model or ""
        if not owner or not label or not version.isdecimal() or int(version) >= 2**63:
            raise RoutesError(
                "--labels must be LABEL=VERSION, or MODEL:LABEL=VERSION with several models, "
                f"separated by commas. Received: {part}"
            )
        labels.setdefault(owner, {})[label] = int(version)
    return labels


@dataclasses.dataclass
class RoutesFile:
    """A file that holds the routes, for later starts and for the other worker processes.

    Attributes:
        path: The file; None keeps the routes in memory.
    """

    path: Path | None
    _seen: tuple[int, int] = (0, 0)

    def load(self) -> Routes | None:
        """Returns the routes if the file changed since it was last read or written here.

        Raises:
            RoutesError: The file does not hold routes.
        """
        if self.path is None:
            return None
        try:
            stamp = _stamp(self.path)
            if stamp == self._seen:
                return None
            routes = msgspec.json.decode(self.path.read_bytes(), type=Routes)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise RoutesError(f"The file of routes cannot be read: {self.path}: {error}") from None
        self._seen = stamp
        return routes

    def save(self, routes: Routes) -> None:
        """Replaces the file in one step."""
        if self.path is None:
            return
        with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:
            file.write(msgspec.json.format(msgspec.json.encode(routes)))
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self.path)
        self._seen = _stamp(self.path)


def replaced(routes: Routes, **changes: Any) -> Routes:
    """Returns the routes with some decisions replaced."""
    return msgspec.structs.replace(routes, **changes)


def with_model(table: Mapping[str, Any], model: str, value: Any) -> dict[str, Any]:
    """Returns a table by model with one model's entry set, or removed if the value is empty."""
    rest = {name: entry for name, entry in table.items() if name != model}
    return {**rest, model: value} if value else rest


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino
