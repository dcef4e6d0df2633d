"""A summary of what the engine serves: models, versions and their ages, tables and their growth."""

import asyncio
import time
from collections import deque
from typing import Any

from ..engines.base import Engine, VersionState
from ..errors import ServingError
from ..observability.metrics import Metrics
from ..request import ModelSpec, Request, begin_request
from . import models

# Seconds between two collections. A collection reads the statistics of every table, so all clients
# share one result.
_KEPT_SECONDS = 5.0
# Seconds to wait for a model server. A silent server must not block the summary.
_PATIENCE_SECONDS = 1.0
_GIVEN_UP_SECONDS = 10.0
_GROWTH_POINTS = 360


class Snapshots:
    """Collects the summary, at most every few seconds."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        """Creates the collector. It sends no requests yet."""
        self._engine = engine
        self._metrics = metrics
        self._taken = float("-inf")
        self._models: list[dict[str, Any]] = []
        self._growth: dict[tuple[str, str], deque[tuple[int, float]]] = {}
        self._taking: asyncio.Task[None] | None = None

    async def models(self) -> list[dict[str, Any]]:
        """Returns models with versions, ages in seconds, tables and the tables' growth.

        Returns the last complete summary if collecting a new one takes longer than a second.
        """
        if self._taking is None and time.monotonic() - self._taken > _KEPT_SECONDS:
            self._taking = asyncio.get_running_loop().create_task(self._take())
        if self._taking is not None:
            taking = self._taking
            await asyncio.wait([taking], timeout=_PATIENCE_SECONDS)
            if taking.done():
                taking.result()
        return self._models

    async def _take(self) -> None:
        # Give the collection a deadline of its own. The request that started it may have less time
        # than others that wait for it.
        begin_request(Request(deadline=time.monotonic() + _GIVEN_UP_SECONDS))
        found: list[dict[str, Any]] = []
        try:
            async for name, statuses, _ in models.all_statuses(self._engine):
                now = time.time()
                ages = {s: round(now - s.published, 1) if s.published else None for s in statuses}
                available = [s.version for s in statuses if s.state is VersionState.AVAILABLE]
                newest = max(available, default=None)
                found.append(
                    {
                        "name": name,
                        "serving": newest,
                        "versions": [
                            {**models.status_entry(s), "age_seconds": age}
                            for s, age in ages.items()
                        ],
                        "tables": [] if newest is None else await self._tables(name),
                    }
                )
            self._models = found
            self._metrics.set_models(found)
            self._taken = time.monotonic()
        finally:
            self._taking = None

    async def _tables(self, name: str) -> list[dict[str, Any]]:
        try:
            servable = await self._engine.lease(ModelSpec(name))
            try:
                tables = await models.table_stats(servable)
            finally:
                servable.release()
        except ServingError:
            return []
        for table in tables:
            rows = table.get("rows")
            if isinstance(rows, int | float):
                key = (name, str(table.get("table")))
                points = self._growth.setdefault(key, deque(maxlen=_GROWTH_POINTS))
                points.append((int(time.time()), rows))
                table["growth"] = list(points)
        return tables
