"""The versions of one model: loading, serving, and leaving once nobody uses them.

A version serves from the moment it is loaded until the policy wants others instead; then it
takes no new requests, and is released after the last request that holds it. A version that
cannot be loaded changes nothing for those that serve. A version whose files turn out to be
damaged is replaced by the one before, as soon as that has loaded.
"""

import asyncio
import dataclasses
import functools
import logging
import time
from pathlib import Path

from server.engines.base import VersionState, VersionStatus
from server.engines.embedded.batching import BatchOptions
from server.engines.embedded.leased_version import LeasedVersion, LoadModel
from server.engines.embedded.model_folder import Versions, fingerprint
from server.engines.embedded.version_policy import LATEST, VersionPolicy
from server.engines.embedded.worker_pool import WorkerPool
from server.errors import Code

_LOG = logging.getLogger("server.models")
_REMEMBERED = 16
_AWAITED = (VersionState.START, VersionState.LOADING)


@dataclasses.dataclass
class _Record:
    """What is known of a version."""

    status: VersionStatus
    serving: LeasedVersion | None = None
    # The files of a version that failed to load, or that are damaged.
    failed_fingerprint: int | None = None
    # What is wrong with the files of a version that was loaded.
    damage: str = ""


class ModelVersions:
    """The versions of one model. Used from one event loop."""

    def __init__(
        self,
        name: str,
        load: LoadModel,
        pool: WorkerPool,
        loader: WorkerPool,
        policy: VersionPolicy = LATEST,
        batching: BatchOptions | None = None,
        brief_seconds: float = 0.0,
    ) -> None:
        """Makes a model without versions.

        Args:
            name: The model's name, for the log.
            load: Loads a version from its folder; blocks.
            pool: Where the model's signatures run.
            loader: Where loading and releasing run, so that requests never wait for them.
            policy: Which versions should serve.
            batching: How requests are batched; not at all if not given.
            brief_seconds: Runs that take no longer need no thread.
        """
        self._policy = policy
        self._batching = batching or BatchOptions()
        self._brief_seconds = brief_seconds
        self._name = name
        self._load = load
        self._pool = pool
        self._loader = loader
        self._records: dict[int, _Record] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    def current(self) -> LeasedVersion | None:
        """Returns the newest version that serves."""
        return max(self._serving(), key=lambda version: version.version, default=None)

    def get(self, version: int) -> LeasedVersion | None:
        """Returns a version if it serves."""
        record = self._records.get(version)
        return record.serving if record else None

    def find(self, version: int | None) -> LeasedVersion | None:
        """Returns a version, or the newest for None, if it serves."""
        return self.current() if version is None else self.get(version)

    def awaits(self, version: int | None) -> bool:
        """Returns whether a version, or any for None, is being loaded or will be."""
        return any(
            record.status.state in _AWAITED
            for number, record in self._records.items()
            if version in (None, number)
        )

    def is_empty(self) -> bool:
        """Returns whether no version is in memory. Not to be asked during an `update`."""
        held = (VersionState.AVAILABLE, VersionState.UNLOADING)
        return all(record.status.state not in held for record in self._records.values())

    def expect(self, folders: Versions) -> None:
        """Notes the versions that the next `update` tries first: they are awaited from now on."""
        for version in self._policy.candidates(folders)[: self._policy.count]:
            self._expect(version)

    def _expect(self, version: int) -> None:
        self._records.setdefault(version, _Record(VersionStatus(version, VersionState.START)))

    def statuses(self) -> list[VersionStatus]:
        """Returns the state of every version known, highest first."""
        return [record.status for _, record in sorted(self._records.items(), reverse=True)]

    async def update(self, folders: Versions) -> None:
        """Makes those versions serve that the policy wants and that load.

        Args:
            folders: The versions on disk. If none is left, what serves goes on serving.
        """
        await self._look_for_damage(folders)
        kept: set[int] = set()
        for version in self._policy.candidates(folders):
            if len(kept) == self._policy.count:
                break
            if self._is_damaged(version):
                continue
            if self._is_leaving(version):
                # Wanted back while its last requests finish: it can be loaded after that.
                kept.clear()
                break
            if self.get(version) is not None or await self._try_load(version, folders[version]):
                kept.add(version)
        if kept:
            for other in self._serving():
                if other.version not in kept:
                    self._retire(other)
        self._forget(folders)

    async def close(self) -> None:
        """Releases every version, each after its last holder."""
        for version in self._serving():
            self._retire(version)
        await asyncio.gather(*self._retiring)

    async def _look_for_damage(self, folders: Versions) -> None:
        """Asks the versions that serve whether the check of their files found damage."""
        for record in list(self._records.values()):
            serving = record.serving
            if serving is None or record.damage or serving.version not in folders:
                continue
            serving.hold()
            record.damage = await self._loader.run(serving.damage, serving.release)
            if record.damage:
                path = folders[serving.version]
                record.failed_fingerprint = await self._loader.run(
                    functools.partial(fingerprint, path)
                )
                _LOG.error(
                    "model %s version %d is damaged: %s", self._name, serving.version, record.damage
                )

    def _is_damaged(self, version: int) -> bool:
        """Returns whether a version that is still there is damaged."""
        record = self._records.get(version)
        return bool(record and record.damage and record.status.state is not VersionState.END)

    def _is_leaving(self, version: int) -> bool:
        record = self._records.get(version)
        return record is not None and record.status.state is VersionState.UNLOADING

    def _serving(self) -> list[LeasedVersion]:
        return [r.serving for r in self._records.values() if r.serving is not None]

    async def _try_load(self, version: int, path: Path) -> bool:
        self._expect(version)
        before = self._records[version]
        files = await self._loader.run(lambda: fingerprint(path))
        if before.failed_fingerprint == files:
            return False
        record = _Record(VersionStatus(version, VersionState.LOADING))
        self._records[version] = record
        try:
            model = await self._loader.run(lambda: self._load(path))
        except Exception as error:
            record.status = VersionStatus(version, VersionState.END, Code.UNKNOWN, str(error))
            record.failed_fingerprint = files
            _LOG.error("model %s version %d does not load: %s", self._name, version, error)
            return False
        record.serving = LeasedVersion(
            version, model, self._pool, self._batching, self._brief_seconds
        )
        published = await self._loader.run(lambda: _published(path))
        record.status = VersionStatus(version, VersionState.AVAILABLE, published=published)
        _LOG.info("model %s version %d serves", self._name, version)
        return True

    def _retire(self, version: LeasedVersion) -> None:
        record = self._records[version.version]
        record.serving = None
        record.status = VersionStatus(version.version, VersionState.UNLOADING)
        task = asyncio.get_running_loop().create_task(self._finish(record, version))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _finish(self, record: _Record, version: LeasedVersion) -> None:
        await version.close(self._loader.run)
        code = Code.DATA_LOSS if record.damage else Code.OK
        record.status = VersionStatus(version.version, VersionState.END, code, record.damage)
        _LOG.info("model %s version %d is released", self._name, version.version)

    def _forget(self, folders: Versions) -> None:
        """Drops what was never loaded and is gone, and the oldest of many ended versions."""
        for version in self._records.keys() - folders.keys():
            if self._records[version].status.state is VersionState.START:
                del self._records[version]
        ended = [v for v, r in self._records.items() if r.status.state is VersionState.END]
        for version in sorted(ended, reverse=True):
            failed = self._records[version].failed_fingerprint is not None
            if failed and version not in folders:
                del self._records[version]
        for version in sorted(v for v in ended if v in self._records)[:-_REMEMBERED]:
            del self._records[version]


def _published(path: Path) -> float:
    try:
        return (path / "saved_model.pb").stat().st_mtime
    except OSError:
        return time.time()
