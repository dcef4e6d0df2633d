"""The catalog of the model servers: versions by model and endpoint, and their signatures."""

import asyncio
import dataclasses
import random
import time
from collections.abc import Collection, Sequence

from ...errors import Code, ServingError
from ...protos.modules import load_protos, parse
from ...protos.tensors import signatures_of
from ...request import ModelSpec
from ...tensors import SignatureSpec
from ..base import STATE_NUMBERS, VersionState, VersionStatus
from .endpoint import Endpoint
from .pool import UpstreamPool

_STATES = {number: state for state, number in STATE_NUMBERS.items()}
# States from the least to the most advanced. The most advanced one that is reported counts.
_RANK = ["END", "START", "UNLOADING", "LOADING", "AVAILABLE"]
_CODES = dict(enumerate(Code))
_PROBE_SECONDS = 2.0
# An endpoint that serves a model, and the versions there.
_Serving = tuple[Endpoint, list[int]]


class Catalog:
    """The versions as of the last poll. Used from one event loop.

    The polls decide which endpoints are in service. An endpoint that misses one poll may only be
    busy. It still gets requests for a version, but only if no other endpoint has this version. An
    endpoint that misses the next poll too is out of service. A drained endpoint gets no requests.
    Its versions stay in the catalog, so that requests for them fail as unavailable and not as
    unknown.
    """

    def __init__(self, models: Collection[str], pool: UpstreamPool) -> None:
        """Creates an empty catalog."""
        self.models = frozenset(models)
        self._pool = pool
        self._protos = load_protos()
        self._found: dict[str, dict[str, list[VersionStatus]]] = {name: {} for name in self.models}
        self._signatures: dict[tuple[str, int], list[SignatureSpec]] = {}
        self._labels: dict[tuple[str, str], int] = {}
        self._first_seen: dict[tuple[str, int], float] = {}
        # The available versions by model and endpoint. Every request reads them.
        self._available_at: dict[tuple[str, str], list[int]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def refresh(self) -> None:
        """Polls all endpoints. The poll begins after this call, and polls never overlap."""
        async with self._one_at_a_time:
            await asyncio.gather(*(self._look_at(endpoint) for endpoint in self._pool.endpoints))
        self._labels.clear()
        known = {(m, v) for m in self.models for _, found in self._serving(m) for v in found}
        self._signatures = {k: v for k, v in self._signatures.items() if k in known}
        for key in known:
            self._first_seen.setdefault(key, time.time())

    async def _look_at(self, endpoint: Endpoint) -> None:
        answers = await asyncio.gather(
            *(self._statuses_at(endpoint, model) for model in self.models)
        )
        for model, statuses in zip(self.models, answers, strict=True):
            if statuses is not None:
                self._found[model][endpoint.name] = statuses
                self._available_at[model, endpoint.name] = [
                    status.version for status in statuses if status.state is VersionState.AVAILABLE
                ]
        if any(answers):
            endpoint.missed = 0
        elif all(answer is None for answer in answers):
            endpoint.missed += 1

    async def _statuses_at(self, endpoint: Endpoint, model: str) -> list[VersionStatus] | None:
        """Asks an endpoint for the states of a model's versions; returns None if it does not tell.

        An endpoint that refuses the poll, because it has too much to do, still serves what it did.
        """
        request = self._protos.GetModelStatusRequest()
        request.model_spec.name = model
        try:
            answer = await endpoint.call(
                "GetModelStatus", request.SerializeToString(), _PROBE_SECONDS
            )
            response = parse(self._protos.GetModelStatusResponse, answer)
        except ServingError as error:
            if error.code is Code.RESOURCE_EXHAUSTED:
                return self._found[model].get(endpoint.name, [])
            return None if error.code is Code.DEADLINE_EXCEEDED else []
        return [
            VersionStatus(
                entry.version,
                _STATES.get(entry.state, VersionState.START),
                _CODES.get(entry.status.error_code, Code.UNKNOWN),
                entry.status.error_message,
            )
            for entry in response.model_version_status
        ]

    def _serving(self, model: str) -> list[_Serving]:
        found = (
            (each, self._available_at.get((model, each.name))) for each in self._pool.endpoints
        )
        return [(each, versions) for each, versions in found if versions and each.answers]

    def serves(self, model: str) -> bool:
        """Returns whether any endpoint in service serves the model."""
        return any(endpoint.in_service for endpoint, _ in self._serving(model))

    def latest(self, model: str) -> int | None:
        """Returns the newest version that requests can use; None if no endpoint serves any."""
        serving = _best(self._serving(model))
        return max((version for _, versions in serving for version in versions), default=None)

    def endpoints_of(self, model: str, version: int) -> list[str]:
        """Returns the endpoints for requests to a version."""
        serving = [each for each in self._serving(model) if version in each[1]]
        return [endpoint.name for endpoint, _ in _best(serving)]

    def statuses(self, model: str) -> list[VersionStatus]:
        """Returns the state of each version, highest first."""
        found = self._found.get(model, {})
        best: dict[int, VersionStatus] = {}
        for endpoint in self._pool.endpoints:
            for status in found.get(endpoint.name, ()) if endpoint.answers else ():
                other = best.get(status.version, status)
                best[status.version] = max(other, status, key=lambda s: _RANK.index(s.state.value))
        seen = self._first_seen
        return [
            dataclasses.replace(best[version], published=seen.get((model, version), 0.0))
            for version in sorted(best, reverse=True)
        ]

    async def version_of_label(self, spec: ModelSpec) -> int:
        """Returns the version of a label on the model servers.

        Raises:
            ServingError: INVALID_ARGUMENT if the label is unknown there.
        """
        key = (spec.name, spec.label or "")
        if key not in self._labels:
            anywhere = [endpoint.name for endpoint in self._pool.endpoints]
            try:
                self._labels[key] = await self._describe(spec, anywhere)
            except ServingError as error:
                if error.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION):
                    raise spec.unknown_label() from None
                raise
        return self._labels[key]

    async def signatures(self, model: str, version: int) -> Sequence[SignatureSpec]:
        """Returns the signatures of a version; requests them only once."""
        key = (model, version)
        if key not in self._signatures:
            await self._describe(ModelSpec(model, version), self.endpoints_of(model, version))
        return self._signatures[key]

    async def replacement(self, model: str, version: int) -> int:
        """Returns the version that has replaced a version since the last poll."""
        endpoints = self.endpoints_of(model, version)
        asked = random.sample(endpoints, min(1, len(endpoints)))
        newest = await self._describe(ModelSpec(model), asked)
        for name in asked:
            if newest not in self._available_at[model, name]:
                self._available_at[model, name].append(newest)
        return newest

    async def _describe(self, spec: ModelSpec, eligible: Collection[str]) -> int:
        """Requests the signatures of a version; returns the version's number."""
        request = self._protos.GetModelMetadataRequest()
        request.model_spec.name = spec.name
        if spec.version is not None:
            request.model_spec.version.value = spec.version
        elif spec.label is not None:
            request.model_spec.version_label = spec.label
        request.metadata_field.append("signature_def")
        answer = await self._pool.call("GetModelMetadata", request.SerializeToString(), eligible)
        response = parse(self._protos.GetModelMetadataResponse, answer)
        version = int(response.model_spec.version.value) if spec.version is None else spec.version
        definitions = self._protos.SignatureDefMap()
        response.metadata["signature_def"].Unpack(definitions)
        self._signatures[spec.name, version] = signatures_of(definitions.signature_def)
        return version


def _best(serving: list[_Serving]) -> list[_Serving]:
    """Returns the endpoints to ask: a late one if no other is there, a drained one last of all."""
    badness = [(endpoint.drained, endpoint.missed) for endpoint, _ in serving]
    least = min(badness, default=None)
    return [each for each, bad in zip(serving, badness, strict=True) if bad == least]
