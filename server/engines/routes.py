"""The operator's decisions on traffic: labels, a split between versions, drained upstreams."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class RoutesError(Exception):
    """A routes file, or a list of labels, is invalid; the message says why."""


class Routes(msgspec.Struct, frozen=True):
    """The decisions. A change replaces the whole object, so no reader sees half of the change.

    Attributes:
        labels: By model, the version of each label.
        traffic: By model, the weight of each version (its number as a string) for requests that
            name no version.
        drained: Upstreams that get no requests.
        draining: True if readiness fails, so that load balancers use other gateways.
    """

    labels: dict[str, dict[str, int]] = {}
    traffic: dict[str, dict[str, float]] = {}
    drained: list[str] = []
    draining: bool = False


def parse_labels(text: str, model: str | None) -> dict[str, dict[str, int]]:
    """Reads labels from a setting.

    Args:
        text: `stable=1,ranker:canary=2`.
        model: The model for labels without a model's name; None if every label must name one.

    Raises:
        RoutesError: A part does not have this form.

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
    """A file that keeps the routes for the next start, and passes them to other worker processes.

    Attributes:
        path: The file; None keeps the routes in memory.
    """

    path: Path | None
    _seen: tuple[int, int] = (0, 0)

    def load(self) -> Routes | None:
        """Returns the routes if the file changed since this object last read or wrote it.

        Raises:
            RoutesError: The file contains no valid routes.
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
        """Replaces the file atomically."""
        if self.path is None:
            return
        with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:
            file.write(msgspec.json.format(msgspec.json.encode(routes)))
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self.path)
        self._seen = _stamp(self.path)


def replaced(routes: Routes, **changes: Any) -> Routes:
    """Returns a copy of the routes with some decisions replaced."""
    return msgspec.structs.replace(routes, **changes)


def with_model(table: Mapping[str, Any], model: str, value: Any) -> dict[str, Any]:
    """Returns a copy of a map by model, with one model's entry set, or removed if empty."""
    rest = {name: entry for name, entry in table.items() if name != model}
    return {**rest, model: value} if value else rest


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino
