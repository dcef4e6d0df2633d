"""The operator's decisions on traffic, and an engine that follows them.

Labels and a traffic split choose the version of a request. Drained upstreams get no requests.
"""

import os
import random
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..errors import Code, ServingError, StartError, failed_precondition, invalid, not_found
from ..keys import WatchedFile
from ..request import ModelSpec
from .base import Engine, Servable, VersionState, VersionStatus

#: The number of a version. Without leading zeros, so that no two keys have equal numbers.
VERSION_PATTERN = "^(0|[1-9][0-9]{0,18})$"
_Version = Annotated[str, msgspec.Meta(pattern=VERSION_PATTERN)]
#: The weight of a version is at least 0 and less than this, so that sums are finite.
WEIGHT_LIMIT = 1e9
_Weight = Annotated[float, msgspec.Meta(ge=0, lt=WEIGHT_LIMIT)]


class Routes(msgspec.Struct, frozen=True):
    """The decisions. A change replaces the whole object, so no reader sees half of the change.

    Attributes:
        labels: By model, the version of each label.
        traffic: By model, the weight of each version (its number as a string) for requests that
            name no version. Versions that do not serve count as 0.
        drained: Upstreams that get no requests.
        draining: True if readiness fails, so that load balancers use other gateways.
    """

    labels: dict[str, dict[str, int]] = {}
    traffic: dict[str, dict[_Version, _Weight]] = {}
    drained: list[str] = []
    draining: bool = False


_DECODER = msgspec.json.Decoder(Routes)


def parse_labels(text: str, model: str | None) -> dict[str, dict[str, int]]:
    """Reads labels from a setting.

    `model` is the model for labels without a model's name; None if every label must name one.

    Raises:
        StartError: A part does not have this form.

    Example:
        >>> parse_labels("stable=1,other:canary=2", "ranker")
        {'ranker': {'stable': 1}, 'other': {'canary': 2}}
    """
    labels: dict[str, dict[str, int]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, version = part.partition("=")
        owner, colon, label = name.rpartition(":")
        owner = owner if colon else model or ""
        if not owner or not label or not version.isdecimal() or int(version) >= 2**63:
            raise StartError(
                "--labels must be LABEL=VERSION, or MODEL:LABEL=VERSION with several models, "
                f"separated by commas. Received: {part}"
            )
        labels.setdefault(owner, {})[label] = int(version)
    return labels


class RoutedEngine:
    """An `Engine` that uses `Routes` to choose the version of another engine."""

    def __init__(
        self,
        engine: Engine,
        routes: Routes | None = None,
        file: Path | None = None,
    ) -> None:
        """Creates the engine.

        The routes in `file` override `routes`. The file keeps the routes for the next start, and
        passes them to other worker processes. Without a file the routes stay in memory.

        Raises:
            StartError: The file contains no valid routes.
        """
        self.inner = engine
        self._file = None
        start = routes or Routes()
        if file is not None:
            rule = f"The file of routes cannot be read: {file}"
            self._file = WatchedFile(file, _DECODER.decode, "routes", rule, default=start)
            start = self._file.value
        # No route changes these.
        self.model_names, self.component_versions = engine.model_names, engine.component_versions
        self.start, self.close = engine.start, engine.close
        self.started, self.reload = engine.started, engine.reload
        self.upstreams, self.drain = engine.upstreams, engine.drain
        self._use(start)

    @property
    def routes(self) -> Routes:
        """The decisions now. Reads the file again if it changed."""
        return self._look()

    def _look(self, *, now: bool = False) -> Routes:
        if self._file is not None and self._file.look(now=now):
            self._use(self._file.value)
        return self._routes

    def ready(self) -> bool:
        """See `Engine.ready`. It is not ready while an operator sends traffic elsewhere."""
        return not self.routes.draining and self.inner.ready()

    async def status(self, spec: ModelSpec) -> Sequence[VersionStatus]:
        """See `Engine.status`."""
        return await self.inner.status(self._labelled(spec))

    def lease(self, spec: ModelSpec) -> Coroutine[Any, Any, Servable]:
        """See `Engine.lease`."""
        traffic = self._look().traffic
        if spec.label is not None:
            spec = self._labelled(spec)
        elif spec.version is None and spec.name in traffic:
            return self._lease_by_weight(spec, dict(traffic[spec.name]))
        return self.inner.lease(spec)

    async def _lease_by_weight(self, spec: ModelSpec, weights: dict[str, float]) -> Servable:
        """Leases one of the versions that serve, or the newest version if none of them does."""
        while sum(weights.values()) > 0:
            (version,) = random.choices(list(weights), list(weights.values()))
            try:
                chosen = ModelSpec(spec.name, int(version), by_weight=True)
                return await self.inner.lease(chosen)
            except ServingError as error:
                if error.code not in (Code.NOT_FOUND, Code.UNAVAILABLE):
                    raise
            del weights[version]
        return await self.inner.lease(spec)

    async def set_label(self, model: str, label: str, version: int | None) -> None:
        """Points a label to a version, or removes it.

        Raises:
            ServingError: NOT_FOUND for an unknown model, version or label;
                FAILED_PRECONDITION for a version that does not serve.
        """
        if version is not None:
            await self._check_serves(model, version)
        routes = self._look(now=True)
        labels = dict(routes.labels.get(model, {}))
        if version is not None:
            labels[label] = version
        elif labels.pop(label, None) is None:
            raise not_found(f"Model {model} has no label {label}")
        self._set(routes, labels=_with_model(routes.labels, model, labels))

    async def set_traffic(self, model: str, weights: Mapping[int, float]) -> None:
        """Splits requests that name no version; without weights the newest version takes all.

        Raises:
            ServingError: NOT_FOUND for an unknown model or version; FAILED_PRECONDITION for a
                version that does not serve; INVALID_ARGUMENT if the weights sum to zero.
        """
        if weights and not sum(weights.values()) > 0:
            raise invalid("weights must sum to more than 0. Received: all are 0")
        for version in weights:
            await self._check_serves(model, version)
        named = {str(version): weight for version, weight in weights.items()}
        routes = self._look(now=True)
        self._set(routes, traffic=_with_model(routes.traffic, model, named))

    def set_drained(self, upstream: str, drained: bool) -> None:
        """Takes an upstream out of service, or returns it to service.

        Raises:
            ServingError: NOT_FOUND for an unknown upstream.
        """
        if upstream not in self.upstreams():
            raise not_found(f"There is no upstream called {upstream}")
        routes = self._look(now=True)
        others = [name for name in routes.drained if name != upstream]
        self._set(routes, drained=[*others, upstream] if drained else others)

    def set_draining(self, draining: bool) -> None:
        """Makes readiness fail, or succeed again."""
        self._set(self._look(now=True), draining=draining)

    async def _check_serves(self, model: str, version: int) -> None:
        (status,) = await self.inner.status(ModelSpec(model, version))
        if status.state is not VersionState.AVAILABLE:
            raise failed_precondition(
                f"Version {version} of model {model} must be AVAILABLE. "
                f"Received: {status.state.value}"
            )

    def _labelled(self, spec: ModelSpec) -> ModelSpec:
        version = self.routes.labels.get(spec.name, {}).get(spec.label or "")
        return spec if version is None else ModelSpec(spec.name, version)

    def _set(self, routes: Routes, **changes: Any) -> None:
        """Replaces some decisions, in the file too."""
        routes = msgspec.structs.replace(routes, **changes)
        if self._file is None:
            self._use(routes)
            return
        path = self._file.path
        with (
            tempfile.TemporaryDirectory(dir=path.parent) as folder,  # goes even if the disk is full
            tempfile.NamedTemporaryFile(dir=folder, delete=False) as file,
        ):
            file.write(msgspec.json.format(msgspec.json.encode(routes)))
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        self._look(now=True)  # another process may have written since

    def _use(self, routes: Routes) -> None:
        self._routes = routes
        self.drain(frozenset(routes.drained))


def _with_model(table: Mapping[str, Any], model: str, value: Any) -> dict[str, Any]:
    """Returns a copy of a map by model, with one model's entry set, or removed if empty."""
    rest = {name: entry for name, entry in table.items() if name != model}
    return {**rest, model: value} if value else rest
