"""The tfserving engine: model servers run the models, over TensorFlow Serving's gRPC."""

import asyncio
import contextlib
import importlib.metadata
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ...errors import Code, ServingError, unavailable
from ...observability.metrics import Metrics
from ...protos.requests import read_outputs, write_inputs, write_model
from ...request import ModelSpec
from ...settings import Settings
from ...tensors import TENSOR_WORK, Array, Kind, SignatureSpec, Tensors, written_work
from ..base import Servable, VersionStatus, chosen_statuses
from .catalog import Catalog
from .endpoint import Endpoint, check_client_certificate, parse_upstreams, upstream_token
from .pool import UpstreamPool

_LOG = logging.getLogger("server.upstreams")
# Seconds between two polls. Failed requests ask for a poll, and in an outage these polls must not
# add load.
_PAUSE_SECONDS = 0.1
_DAMAGED_SECONDS = 30.0
# TensorFlow Serving says so if it does not serve the version. A model's own NOT_FOUND differs.
_NO_SERVABLE = "Servable not found for request: "

RunWork = Callable[..., Coroutine[Any, Any, Any]]


def model_names(settings: Settings) -> list[str]:
    """Returns the names of the models on the model servers."""
    return [name.strip() for name in settings.models.split(",") if name.strip()]


class TfServingEngine:
    """An `Engine` that forwards requests to model servers."""

    def __init__(self, settings: Settings, work: RunWork, metrics: Metrics) -> None:
        """Creates the engine. It connects to nothing before `start`.

        `work` runs the functions that write requests and read answers; see `Codec.run`.

        Raises:
            StartError: The list of model servers, or the token or certificate for them, is wrong.
        """
        check_client_certificate(settings)
        self._settings = settings
        self.work = work
        self._metrics = metrics
        self._token = upstream_token(settings)
        endpoints = [Endpoint(*each) for each in parse_upstreams(settings.upstreams).items()]
        self._pool = UpstreamPool(endpoints, metrics)
        self._catalog = Catalog(model_names(settings), self._pool)
        self._started = False
        self._poll_wanted = asyncio.Event()
        # By model and version: the codes of the answers since the last poll.
        self._answers: defaultdict[tuple[str, int], set[Code]] = defaultdict(set)
        # By model and version that answers nothing but DATA_LOSS: the time until which it is not
        # ready, on the clock `time.monotonic`. Then it is ready again for a request that tells
        # whether it is still damaged.
        self._damaged: dict[tuple[str, int | None], float] = {}

    async def start(self) -> None:
        """See `Engine.start`."""
        for endpoint in self._pool.endpoints:
            endpoint.open(self._settings, self._token)
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """See `Engine.close`."""
        self._watcher.cancel()
        await asyncio.wait([self._watcher])
        await asyncio.gather(*(endpoint.close() for endpoint in self._pool.endpoints))

    def model_names(self) -> frozenset[str]:
        """See `Engine.model_names`."""
        return self._catalog.models

    def started(self) -> bool:
        """See `Engine.started`."""
        return self._started

    def ready(self) -> bool:
        """See `Engine.ready`."""
        return all(
            self._catalog.serves(model)
            and self._damaged.get((model, self._catalog.latest(model)), 0.0) < time.monotonic()
            for model in self._catalog.models
        )

    def upstreams(self) -> Mapping[str, str]:
        """See `Engine.upstreams`."""
        return self._pool.states()

    def drain(self, names: frozenset[str]) -> None:
        """See `Engine.drain`."""
        for endpoint in self._pool.endpoints:
            endpoint.drained = endpoint.name in names

    def component_versions(self) -> Mapping[str, str]:
        """See `Engine.component_versions`."""
        return {name: importlib.metadata.version(name) for name in ("grpcio", "protobuf")}

    async def status(self, spec: ModelSpec) -> Sequence[VersionStatus]:
        """See `Engine.status`."""
        statuses = self._catalog.statuses(spec.name)
        if spec.name in self._catalog.models:
            if not statuses:
                raise self._unreached(spec)
            if spec.label is not None:
                spec = ModelSpec(spec.name, await self._catalog.version_of_label(spec))
        elif spec.label is not None:
            raise spec.unknown_label()
        return chosen_statuses(spec, statuses)

    async def lease(self, spec: ModelSpec) -> Servable:
        """See `Engine.lease`."""
        if spec.name not in self._catalog.models:
            raise spec.not_found()
        try:
            return await self._servable(spec)
        except ServingError as error:
            self._poll_wanted.set()
            if error.code is not Code.UNAVAILABLE:
                raise
            return await self._servable(spec)  # perhaps a version of another server

    async def _servable(self, spec: ModelSpec) -> "UpstreamModel":
        if spec.label is not None:
            version: int | None = await self._catalog.version_of_label(spec)
        else:
            version = spec.version
        if version is None:
            version = self._catalog.latest(spec.name)
        if version is None or not self._catalog.endpoints_of(spec.name, version):
            if not self._catalog.statuses(spec.name):
                raise self._unreached(spec)
            raise spec.not_found()
        try:
            signatures = await self._catalog.signatures(spec.name, version)
        except ServingError as error:
            named = spec.version is not None or spec.label is not None
            if named or not error.message.startswith(_NO_SERVABLE):
                raise
            self._poll_wanted.set()
            version = await self._catalog.replacement(spec.name, version)
            signatures = await self._catalog.signatures(spec.name, version)
        if spec.by_weight:
            spec = ModelSpec(spec.name)
        return UpstreamModel(self, spec, version, signatures)

    @staticmethod
    def _unreached(spec: ModelSpec) -> ServingError:
        return unavailable(f"No model server that serves {spec.name} can be reached")

    async def _watch(self) -> None:
        while True:
            try:
                await self.reload()
            except Exception:
                # Catch everything: the known versions stay usable, and the next poll may succeed.
                _LOG.exception("asking the model servers failed")
            self._started = True
            # Random, so that several gateways do not poll at the same time.
            seconds = self._settings.poll_seconds * random.uniform(0.8, 1.2)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._poll_wanted.wait(), seconds)
            await asyncio.sleep(_PAUSE_SECONDS)
            self._poll_wanted.clear()

    async def reload(self) -> None:
        """See `Engine.reload`. Polls the model servers."""
        before = self._pool.states()
        await self._catalog.refresh()
        if self._pool.states() != before:
            self._damaged.clear()  # a server that was started again may be repaired
        for served, codes in list(self._answers.items()):
            if Code.OK in codes:
                self._damaged.pop(served, None)
            elif Code.DATA_LOSS in codes:
                self._damaged[served] = time.monotonic() + _DAMAGED_SECONDS
            codes.clear()
            if not self._catalog.endpoints_of(*served):  # the version has gone
                del self._answers[served]
        for endpoint in self._pool.endpoints:
            self._metrics.upstream_in_flight.labels(endpoint.name).set(endpoint.in_flight)
            self._metrics.upstream_in_service.labels(endpoint.name).set(endpoint.in_service)

    async def predict(
        self, servable: "UpstreamModel", request: bytes, signature: SignatureSpec
    ) -> bytes:
        """Sends a request. Sends it once more, for another version, if no server has this one.

        `request` is a PredictRequest without its model. `servable` becomes the version that is
        asked.
        """
        spec = servable.spec

        async def ask(version: int | None) -> bytes:
            asked = request + write_model(spec.name, version, signature.name)
            served = spec.name, servable.version
            endpoints = self._catalog.endpoints_of(*served)
            # A signature without inputs tells the statistics of tables, and reads no rows.
            codes = self._answers[served] if signature.inputs else None
            return await self._pool.call("Predict", asked, endpoints, codes)

        try:
            return await ask(servable.version)
        except ServingError as error:
            version: int | None = None
            if error.code is Code.UNAVAILABLE:
                self._poll_wanted.set()  # this request does not wait for the poll
                other = None
                with contextlib.suppress(ServingError):
                    other = await self._servable(spec)
                if other is None or other.version == servable.version:
                    raise
                if other.signatures.get(signature.name) != signature:
                    raise
                self._metrics.retries.inc()
                version = servable.version = other.version
            elif error.message.startswith(_NO_SERVABLE):
                self._poll_wanted.set()
                if spec.version is not None or spec.label is not None:
                    raise spec.not_found() from None
                # The server has replaced its newest version since the last poll. It chooses one
                # itself, and checks the inputs against that version's signature.
                if not self._catalog.endpoints_of(spec.name, servable.version):  # polled meanwhile
                    servable.version = self._catalog.latest(spec.name) or servable.version
            else:
                raise  # the model's own error
        return await ask(version)


class UpstreamModel:
    """One version of a model on the model servers; a `Servable`."""

    def __init__(
        self,
        engine: TfServingEngine,
        spec: ModelSpec,
        version: int,
        described: Sequence[SignatureSpec],
    ) -> None:
        """Creates the servable."""
        self._engine = engine
        self.spec = spec
        self.version = version
        self.described = described
        self.signatures = {signature.name: signature for signature in described}

    async def run(self, signature: str, inputs: Tensors) -> dict[str, Array]:
        """See `Servable.run`. The model becomes the version that answers."""
        spec, work, leased = self.signatures[signature], self._engine.work, self.version
        request = await work(written_work(inputs), "encode", write_inputs, inputs)
        answer = await self._engine.predict(self, request, spec)
        has_strings = any(each.dtype.kind is Kind.STRING for each in spec.outputs.values())
        size = len(answer) // (1 if has_strings else TENSOR_WORK)
        outputs: dict[str, Array]
        answered, outputs = await work(size, "decode", read_outputs, answer)
        self.version = answered or self.version  # 0 if the answer names none
        if self.version != leased and outputs.keys() != spec.outputs.keys():
            raise unavailable(
                f"Version {self.version} of model {self.spec.name} has just replaced another one, "
                f"whose signature {signature} has other outputs. Send the request again."
            )
        return outputs

    def release(self) -> None:
        """See `Servable.release`. A model server keeps its versions itself."""
