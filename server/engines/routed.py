"""An engine with the operator's routes: labels and a traffic split choose the version."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ..errors import Code, ServingError, invalid
from .base import Engine, LeasedServable, ModelSpec, VersionState, VersionStatus
from .routes import Routes, RoutesError, RoutesFile, replaced, with_model

_LOG = logging.getLogger("server.models")
_LOOK_SECONDS = 0.5


class RoutedEngine:
    """An `Engine` that uses `Routes` to choose the version of another engine."""

    def __init__(
        self,
        engine: Engine,
        routes: Routes | None = None,
        file: RoutesFile | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Creates the engine.

        Args:
            engine: Runs the models.
            routes: The routes at the start; routes in the file override them.
            file: The file that keeps the routes.
            chance: Returns a random number in [0, 1), for the traffic split.
        """
        self.inner = engine
        self._file = file or RoutesFile(None)
        self.routes = self._file.load() or routes or Routes()
        self._chance = chance
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See `Engine.start`."""
        await self.inner.start()
        self._apply()
        if self._file.path is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """See `Engine.close`."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await self.inner.close()

    def model_names(self) -> frozenset[str]:
        """See `Engine.model_names`."""
        return self.inner.model_names()

    def started(self) -> bool:
        """See `Engine.started`."""
        return self.inner.started()

    def ready(self) -> bool:
        """See `Engine.ready`."""
        return self.inner.ready()

    def component_versions(self) -> Mapping[str, str]:
        """See `Engine.component_versions`."""
        return self.inner.component_versions()

    async def reload(self) -> None:
        """See `Engine.reload`."""
        await self.inner.reload()

    def upstreams(self) -> Mapping[str, str]:
        """See `Engine.upstreams`."""
        return self.inner.upstreams()

    def drain(self, names: frozenset[str]) -> None:
        """See `Engine.drain`."""
        self.inner.drain(names)

    async def status(self, spec: ModelSpec) -> Sequence[VersionStatus]:
        """See `Engine.status`."""
        return await self.inner.status(self._labelled(spec))

    def lease(self, spec: ModelSpec) -> Coroutine[Any, Any, LeasedServable]:
        """See `Engine.lease`."""
        if spec.label is not None or self.routes.traffic:
            spec = self._resolved(spec)
        return self.inner.lease(spec)

    async def set_label(self, model: str, label: str, version: int | None) -> None:
        """Points a label to a version, or removes it.

        Raises:
            ServingError: NOT_FOUND for an unknown model, version or label;
                FAILED_PRECONDITION for a version that does not serve.
        """
        labels = dict(self.routes.labels.get(model, {}))
        if version is None:
            if label not in labels:
                raise ServingError(Code.NOT_FOUND, f"Model {model} has no label {label}")
            del labels[label]
        else:
            await self._check_serves(model, version)
            labels[label] = version
        self._set(replaced(self.routes, labels=with_model(self.routes.labels, model, labels)))

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
        self._set(replaced(self.routes, traffic=with_model(self.routes.traffic, model, named)))

    def set_drained(self, upstream: str, drained: bool) -> None:
        """Takes an upstream out of service, or returns it to service.

        Raises:
            ServingError: NOT_FOUND for an unknown upstream.
        """
        if upstream not in self.inner.upstreams():
            raise ServingError(Code.NOT_FOUND, f"There is no upstream called {upstream}")
        others = [name for name in self.routes.drained if name != upstream]
        self._set(replaced(self.routes, drained=[*others, upstream] if drained else others))

    def set_draining(self, draining: bool) -> None:
        """Makes readiness fail, or succeed again."""
        self._set(replaced(self.routes, draining=draining))

    async def _check_serves(self, model: str, version: int) -> None:
        (status,) = await self.inner.status(ModelSpec(model, version))
        if status.state is not VersionState.AVAILABLE:
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"Version {version} of model {model} must be AVAILABLE. "
                f"Received: {status.state.value}",
            )

    def _labelled(self, spec: ModelSpec) -> ModelSpec:
        version = self.routes.labels.get(spec.name, {}).get(spec.label or "")
        return ModelSpec(spec.name, version) if version is not None else spec

    def _resolved(self, spec: ModelSpec) -> ModelSpec:
        if spec.label is not None:
            return self._labelled(spec)
        weights = self.routes.traffic.get(spec.name) if spec.version is None else None
        if not weights:
            return spec
        point = self._chance() * sum(weights.values())
        for version, weight in weights.items():
            point -= weight
            if point < 0:
                return ModelSpec(spec.name, int(version))
        return spec

    def _set(self, routes: Routes) -> None:
        self._file.save(routes)
        self.routes = routes
        self._apply()

    def _apply(self) -> None:
        self.inner.drain(frozenset(self.routes.drained))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                routes = self._file.load()
            except RoutesError as error:
                _LOG.error("%s", error)
                continue
            if routes is not None:
                self.routes = routes
                self._apply()
