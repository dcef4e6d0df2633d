"""The embedded engine: serves the SavedModels of a folder from this process.

A task checks the folder every few seconds. Models run on a bounded pool of threads and load on
another thread. The event loop never waits for TensorFlow.
"""

import asyncio
import contextlib
import functools
import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ...errors import ServingError, unavailable
from ...observability.metrics import Metrics
from ...request import ModelSpec
from ...settings import Settings
from ..base import Engine, Servable, VersionStatus, chosen_statuses
from .batching import Batcher
from .leased_version import LeasedVersion
from .model_folder import VersionPolicy, folder_of
from .model_versions import ModelVersions
from .saved_model import SavedModel
from .warm_up import warm_up
from .worker_pool import WorkerPool

_LOG = logging.getLogger("server.models")
# Requests that may wait for a thread; further ones get a 429.
_MAX_WAITING = 256


class EmbeddedEngine(Engine):
    """An `Engine` that runs SavedModels in this process."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics | None = None,
        promised: Iterable[str] | None = None,
        load: Callable[[Path], SavedModel] | None = None,
    ) -> None:
        """Creates the engine. It reads and loads nothing before `start`.

        Args:
            settings: The model folder, the versions to serve, threads, and micro-batches.
            metrics: Counts batches and waiting requests.
            promised: The models that must serve before the gateway is ready. A model that no longer
                exists does not count. By default the models that the first check finds.
            load: Loads a version from its folder; blocks. Loads SavedModels by default.
        """
        metrics = metrics or Metrics()
        self._settings = settings
        self._folder = folder_of(settings)
        self._policy = VersionPolicy.parse(settings.version_policy)
        self._load = load or self._load_saved_model
        self._look = asyncio.Event()
        # Set at the end of the next look.
        self._looked = asyncio.Event()
        self._pool = WorkerPool("model", settings.threads, _MAX_WAITING)
        metrics.queue_waiting.set_function(lambda: self._pool.waiting)
        # This queue needs no real limit: it never holds more calls than there are versions.
        self._loader = WorkerPool("loader", 1, 10_000)
        batcher = functools.partial(
            Batcher,
            most_rows=settings.batch_rows,
            delay_seconds=settings.batch_delay_ms / 1000,
            observe_rows=metrics.batch_rows.observe,
        )
        self._serve = functools.partial(
            LeasedVersion, pool=self._pool, batcher=batcher if settings.batch_rows else None
        )
        self._models: dict[str, ModelVersions] = {}
        self._promised = None if promised is None else frozenset(promised)
        self._started = False

    async def start(self) -> None:
        """See `Engine.start`."""
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """See `Engine.close`."""
        self._watcher.cancel()
        await asyncio.wait([self._watcher])
        await asyncio.gather(*(model.close() for model in self._models.values()))
        await self._pool.close()
        await self._loader.close()

    def model_names(self) -> frozenset[str]:
        """See `Engine.model_names`."""
        return frozenset(self._models)

    def started(self) -> bool:
        """See `Engine.started`."""
        return self._started

    def ready(self) -> bool:
        """See `Engine.ready`."""
        serving = {name for name, model in self._models.items() if model.current}
        promised = self._promised or frozenset()
        return bool(serving) and promised & self._models.keys() <= serving

    async def reload(self) -> None:
        """See `Engine.reload`."""
        looked = self._looked  # of a look that has not begun yet
        self._look.set()
        await looked.wait()

    def component_versions(self) -> Mapping[str, str]:
        """See `Engine.component_versions`."""
        versions = {}
        for name in ("tensorflow", "tensorflow-cpu", "de-core"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        return versions

    async def status(self, spec: ModelSpec) -> Sequence[VersionStatus]:
        """See `Engine.status`."""
        model = self._models.get(spec.name)
        statuses = model.statuses() if model else []
        if spec.label is not None:
            raise spec.unknown_label()
        if not statuses and not self._started:
            raise _loading(spec)
        return chosen_statuses(spec, statuses)

    async def lease(self, spec: ModelSpec) -> Servable:
        """See `Engine.lease`."""
        model, found = self._models.get(spec.name), None
        if model is not None and spec.label is None:
            found = model.current if spec.version is None else model.find(spec.version)
        if found is None:
            awaited = model is not None and model.awaits(spec.version)
            waits = spec.label is None and (awaited or not self._started)
            raise _loading(spec) if waits else spec.not_found()
        found.hold()
        return found

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._look.clear()
            looked, self._looked = self._looked, asyncio.Event()
            try:
                await self._refresh()
            except Exception:
                # Catch everything: loaded versions must go on serving, and the next check may
                # succeed.
                _LOG.exception("looking at the model folder failed")
            self._started = True
            looked.set()
            # `asyncio.wait_for` of Python 3.11 may swallow the cancellation by `close`.
            timer = loop.call_later(self._settings.poll_seconds, self._look.set)
            await self._look.wait()
            timer.cancel()

    async def _refresh(self) -> None:
        try:
            found = await self._loader.run(self._folder.scan)
        except OSError as error:
            _LOG.warning("the model folder cannot be read: %s", error)
            for model in self._models.values():
                await model.update({})
            return
        if self._promised is None:
            self._promised = frozenset(found)
        for name in self._models.keys() - found.keys():
            if self._models[name].is_empty():
                del self._models[name]
        for name, folders in found.items():
            if name not in self._models:
                self._models[name] = ModelVersions(
                    name, self._load, self._serve, self._loader, self._policy
                )
            self._models[name].expect(folders)
        for name, model in self._models.items():
            await model.update(found.get(name, {}))

    def _load_saved_model(self, path: Path) -> SavedModel:
        model = SavedModel(path, self._settings.threads)
        if self._settings.warm_up:
            warm_up(model, path)
        return model


def _loading(spec: ModelSpec) -> ServingError:
    return unavailable(f"Model {spec.name} is being loaded. Try again later.")
