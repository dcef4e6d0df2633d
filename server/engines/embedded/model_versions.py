"""The versions of one model: loading, serving, and releasing them.

A version serves from the end of its loading until the policy wants other versions. Then it takes no
new requests, and is released after its last request. A version that fails to load does not affect
the others. If a version's files are damaged, the next older version is loaded and then replaces the
damaged one.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import Code
from ..base import VersionState, VersionStatus
from .leased_version import LeasedVersion
from .model_folder import VersionPolicy, Versions, fingerprint
from .saved_model import SavedModel
from .worker_pool import WorkerPool

_LOG = logging.getLogger("server.models")
_REMEMBERED = 16
_AWAITED = (VersionState.START, VersionState.LOADING)


@dataclasses.dataclass
class _Record:
    """The record of a version."""

    status: VersionStatus
    serving: LeasedVersion | None = None
    # Fingerprint of the version's files at the time when they were loaded, failed to load or were
    # found damaged. A changed fingerprint means that they are worth another load.
    fingerprint: int | None = None
    # The damage in the files of a loaded version.
    damage: str = ""
    # True if the folder of a serving version has gone: if it is back, its files are loaded.
    is_gone: bool = False


class ModelVersions:
    """The versions of one model. Used from one event loop."""

    def __init__(
        self,
        name: str,
        load: Callable[[Path], SavedModel],
        serve: Callable[[int, SavedModel], LeasedVersion],
        loader: WorkerPool,
        policy: VersionPolicy,
    ) -> None:
        """Creates a model without versions.

        `load` blocks. `serve` creates the servable of a version that was loaded. `loader` is the
        thread that loads and releases, so that requests never wait for it.
        """
        self._policy = policy
        self._name = name
        self._load = load
        self._serve = serve
        self._loader = loader
        self._records: dict[int, _Record] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        #: The newest version that serves.
        self.current: LeasedVersion | None = None

    def find(self, version: int) -> LeasedVersion | None:
        """Returns a version if it serves."""
        record = self._records.get(version)
        return record.serving if record else None

    def awaits(self, version: int | None) -> bool:
        """Returns whether a version, or any version for None, is loading or about to load."""
        return any(
            record.status.state in _AWAITED
            for number, record in self._records.items()
            if version in (None, number)
        )

    def is_empty(self) -> bool:
        """Returns whether no version is in memory. Do not call it during an `update`."""
        held = (VersionState.AVAILABLE, VersionState.UNLOADING)
        return all(record.status.state not in held for record in self._records.values())

    def expect(self, folders: Versions) -> None:
        """Marks versions as about to load: those that the next `update` tries first."""
        for version in self._policy.candidates(folders)[: self._policy.count]:
            self._records.setdefault(version, _Record(VersionStatus(version)))

    def statuses(self) -> list[VersionStatus]:
        """Returns the state of every known version, highest first."""
        return [record.status for _, record in sorted(self._records.items(), reverse=True)]

    async def update(self, folders: Versions) -> None:
        """Loads and serves the versions that the policy wants. Skips versions that fail to load.

        Args:
            folders: The versions on disk. If there are none, the loaded versions keep serving.
        """
        await self._look_for_damage(folders)
        for version, record in self._records.items():
            record.is_gone |= version not in folders
        kept: set[int] = set()
        for version in self._policy.candidates(folders):
            if len(kept) == self._policy.count:
                break
            record = self._records.setdefault(version, _Record(VersionStatus(version)))
            state = record.status.state
            if state is VersionState.UNLOADING and not record.damage:
                # This version is wanted again while its last requests finish. Retire no version
                # now: a later update loads this one.
                kept.clear()
                break
            if await self._load_if_new(record, folders[version]):
                kept.add(version)
        if kept:
            for version, record in self._records.items():
                if version not in kept:
                    self._retire(record)
        self._forget(folders)

    async def close(self) -> None:
        """Releases every version after its last user."""
        for record in self._records.values():
            self._retire(record)
        await asyncio.gather(*self._retiring)

    async def _look_for_damage(self, folders: Versions) -> None:
        """Checks whether a lookup or the background check found damaged files of a version."""
        for record in list(self._records.values()):
            serving = record.serving
            if serving is None or record.damage or serving.version not in folders:
                continue
            serving.hold()
            record.damage = await self._loader.run(serving.damage, serving.release)
            if record.damage:
                path = folders[serving.version]
                record.fingerprint = await self._loader.run(functools.partial(fingerprint, path))
                _LOG.error(
                    "model %s version %d is damaged: %s", self._name, serving.version, record.damage
                )

    async def _load_if_new(self, record: _Record, path: Path) -> bool:
        """Loads a version unless the same files were loaded before. Returns whether it serves.

        If it serves already and its folder was written again, it is replaced once the new files are
        loaded. Files that change in place are not loaded: they may be part of a copy.
        """
        version, before = record.status.version, record
        serves = before.serving is not None and not before.damage
        if serves and not before.is_gone:
            return True
        files = await self._loader.run(lambda: fingerprint(path))
        if before.fingerprint == files:
            return serves
        if before.serving is None:
            record = self._records[version] = _Record(VersionStatus(version, VersionState.LOADING))
        record.fingerprint = files

        def load() -> tuple[SavedModel, float]:
            model, published = self._load(path), time.time()
            with contextlib.suppress(OSError):  # the folder has just gone
                published = (path / "saved_model.pb").stat().st_mtime
            return model, published

        try:
            model, published = await self._loader.run(load)
        except Exception as error:
            if before.serving is None:
                record.status = VersionStatus(version, VersionState.END, Code.UNKNOWN, str(error))
            _LOG.error("model %s version %d does not load: %s", self._name, version, error)
            return serves
        status = VersionStatus(version, VersionState.AVAILABLE, published=published)
        self._records[version] = _Record(status, self._serve(version, model), files)
        self._retire(before)
        self._choose_current()
        _LOG.info("model %s version %d serves", self._name, version)
        return True

    def _choose_current(self) -> None:
        serving = [each.serving for each in self._records.values() if each.serving is not None]
        self.current = max(serving, key=lambda version: version.version, default=None)

    def _retire(self, record: _Record) -> None:
        version, record.serving = record.serving, None
        if version is None:
            return
        if not record.damage:
            record.fingerprint = None
        record.status = VersionStatus(version.version, VersionState.UNLOADING)
        self._choose_current()
        task = asyncio.get_running_loop().create_task(self._finish(record, version))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _finish(self, record: _Record, version: LeasedVersion) -> None:
        await version.close(self._loader.run)
        code = Code.DATA_LOSS if record.damage else Code.OK
        record.status = VersionStatus(version.version, VersionState.END, code, record.damage)
        _LOG.info("model %s version %d is released", self._name, version.version)

    def _forget(self, folders: Versions) -> None:
        """Removes the records of vanished versions that never served, and of old released ones."""
        ended = []
        for version, record in sorted(self._records.items()):
            state, vanished = record.status.state, version not in folders
            failed = state is VersionState.END and record.fingerprint is not None
            if vanished and (failed or state is VersionState.START):
                del self._records[version]
            elif state is VersionState.END:
                ended.append(version)
        for version in ended[:-_REMEMBERED]:
            del self._records[version]
