"""The tfserving engine: model servers run the models, over TensorFlow Serving's gRPC."""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...errors import Code, ServingError
from ...observability.metrics import Metrics
from ...protos.forwarding import (
    read_classes,
    read_outputs,
    read_values,
    write_examples,
    write_inputs,
    write_model,
)
from ...protos.modules import Protos, load_protos
from ...tensors import Array, SignatureSpec, Tensors, written_work
from ..base import Classifications, LeasedServable, ModelSpec, VersionStatus
from .breaker import Breaker
from .catalog import Catalog
from .channels import ChannelOptions
from .endpoint import Endpoint, UpstreamAddress
from .pool import UpstreamPool

_LOG = logging.getLogger("server.upstreams")
# After _BREAKER_FAILURES failures in a row, an upstream gets no requests for _BREAKER_SECONDS.
_BREAKER_FAILURES = 5
_BREAKER_SECONDS = 2.0
# Writing an example takes as long as decoding this many bytes of JSON.
_EXAMPLE_WORK = 128
# Reading a byte of the answer to `:classify` or `:regress` takes this many times as long as
# decoding a byte of JSON.
_ENTRIES_WORK = 16
# Numeric bytes of the answer to `:predict` are read this many times faster than bytes of JSON.
_TENSOR_WORK = 8

T = TypeVar("T")


class RunWork(Protocol):
    """Runs a function where it blocks no other request; see `Codec.run`."""

    def __call__(
        self, size: int, stage: str, function: Callable[..., T], *arguments: object
    ) -> Coroutine[Any, Any, T]:
        """Returns the function's result."""
        ...


@dataclasses.dataclass(frozen=True)
class TfServingOptions:
    """Options of the tfserving engine.

    Attributes:
        upstreams: The model servers.
        models: The names of their models.
        poll_seconds: Seconds between two polls of the servers' versions.
        channel: Options of the connections.
    """

    upstreams: Sequence[UpstreamAddress]
    models: Sequence[str]
    poll_seconds: float = 2.0
    channel: ChannelOptions = dataclasses.field(default_factory=ChannelOptions)


class TfServingEngine:
    """An `Engine` that forwards requests to model servers."""

    def __init__(self, options: TfServingOptions, work: RunWork, metrics: Metrics) -> None:
        """Creates the engine. It connects to nothing before `start`.

        Args:
            options: The engine's options.
            work: Runs the functions that write requests and read answers.
            metrics: Counts the calls.
        """
        self._options = options
        self.work = work
        endpoints = [
            Endpoint(address, Breaker(_BREAKER_FAILURES, _BREAKER_SECONDS))
            for address in options.upstreams
        ]
        self._pool = UpstreamPool(endpoints, metrics)
        self._protos: Protos = load_protos()
        self._catalog = Catalog(options.models, self._pool, self._protos)
        self._started = False
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """See `Engine.start`."""
        for endpoint in self._pool.endpoints:
            endpoint.open(self._protos, self._options.channel)
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """See `Engine.close`."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await asyncio.gather(*(endpoint.close() for endpoint in self._pool.endpoints))

    def model_names(self) -> frozenset[str]:
        """See `Engine.model_names`."""
        return self._catalog.models

    def started(self) -> bool:
        """See `Engine.started`."""
        return self._started

    def ready(self) -> bool:
        """See `Engine.ready`."""
        return all(self._catalog.serves(model) for model in self._catalog.models)

    async def reload(self) -> None:
        """See `Engine.reload`."""
        await self._catalog.refresh()

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
        if not statuses:
            if spec.label is not None and spec.name not in self._catalog.models:
                raise spec.unknown_label()
            if spec.name in self._catalog.models:
                raise self._unreached(spec)
            raise ServingError(Code.NOT_FOUND, f"Could not find any versions of model {spec.name}")
        version = spec.version
        if spec.label is not None:
            version = await self._catalog.version_of_label(spec)
        if version is None:
            return statuses
        chosen = [status for status in statuses if status.version == version]
        if not chosen:
            raise ServingError(
                Code.NOT_FOUND, f"Could not find version {version} of model {spec.name}"
            )
        return chosen

    async def lease(self, spec: ModelSpec) -> LeasedServable:
        """See `Engine.lease`."""
        if spec.name not in self._catalog.models:
            raise spec.not_found()
        try:
            return await self._servable(spec)
        except ServingError as error:
            if not _may_be_elsewhere(error, spec):
                raise
            await self._catalog.look_again()
            return await self._servable(spec)

    async def _servable(self, spec: ModelSpec) -> "UpstreamModel":
        if spec.label is not None:
            version: int | None = await self._catalog.version_of_label(spec)
        else:
            version = spec.version
        if version is None:
            version = self._catalog.latest(spec.name)
        if version is None or not self._catalog.endpoints_of(spec.name, version):
            if not self._catalog.reached(spec.name):
                raise self._unreached(spec)
            raise spec.not_found()
        signatures = await self._catalog.signatures(spec.name, version)
        return UpstreamModel(self, spec, version, signatures)

    @staticmethod
    def _unreached(spec: ModelSpec) -> ServingError:
        return ServingError(
            Code.UNAVAILABLE,
            f"No model server that serves {spec.name} can be reached",
            retry_after=1.0,
        )

    async def _watch(self) -> None:
        while True:
            try:
                await self._catalog.refresh()
                self._pool.publish()
            except Exception:
                # Catch everything: the known versions stay usable, and the next poll may succeed.
                _LOG.exception("asking the model servers failed")
            self._started = True
            # Random, so that several gateways do not poll at the same time.
            await asyncio.sleep(self._options.poll_seconds * random.uniform(0.8, 1.2))

    async def call(self, method: str, request: bytes, model: str, version: int) -> bytes:
        """Sends a request to an endpoint that serves the version."""
        return await self._pool.call(method, request, self._catalog.endpoints_of(model, version))

    async def instead_of(
        self, servable: "UpstreamModel", error: ServingError
    ) -> "UpstreamModel | None":
        """Returns the version to retry a failed request with; None if a retry is useless.

        The request may have failed because the version's endpoints are gone or serve another
        version now. So this polls once, and then chooses a version that some endpoint serves, newer
        or older.
        """
        if not _may_be_elsewhere(error, servable.spec):
            return None
        await self._catalog.look_again()
        try:
            other = await self._servable(servable.spec)
        except ServingError:
            return None
        if error.code is not Code.UNAVAILABLE:
            return None if other.version == servable.version else other
        return other if self._pool.may_retry() else None


def _may_be_elsewhere(error: ServingError, spec: ModelSpec) -> bool:
    """Returns whether a poll could help a request that failed with this error."""
    if spec.version is None and spec.label is None:
        return error.code in (Code.UNAVAILABLE, Code.NOT_FOUND, Code.FAILED_PRECONDITION)
    return error.code is Code.UNAVAILABLE


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
        """See `Servable.run`."""
        spec, work = self.signatures[signature], self._engine.work
        typed = {name: (spec.inputs[name].dtype, array) for name, array in inputs.items()}
        answer = await self._call(
            "Predict", await work(written_work(inputs), "encode", write_inputs, typed), spec
        )
        return await work(len(answer) // _TENSOR_WORK, "decode", read_outputs, answer)

    async def classify(self, signature: str, examples: Array) -> Classifications:
        """See `Servable.classify`."""
        return Classifications(
            *await self._ask_examples("Classify", signature, examples, read_classes)
        )

    async def regress(self, signature: str, examples: Array) -> Array:
        """See `Servable.regress`."""
        return await self._ask_examples("Regress", signature, examples, read_values)

    async def _ask_examples(
        self, method: str, signature: str, examples: Array, read: Callable[[bytes], T]
    ) -> T:
        work = self._engine.work
        size = len(examples) * _EXAMPLE_WORK
        answer = await self._call(
            method,
            await work(size, "encode", write_examples, examples),
            self.signatures[signature],
        )
        return await work(len(answer) * _ENTRIES_WORK, "decode", read, answer)

    def release(self) -> None:
        """See `LeasedServable.release`. A model server keeps its versions itself."""

    async def _call(self, method: str, request: bytes, signature: SignatureSpec) -> bytes:
        """Sends a request; retries once, perhaps with another version, if no endpoint has this one.

        Args:
            method: The method.
            request: The request without its model.
            signature: The signature to run.
        """
        model = self.spec.name
        request += write_model(model, self.version, signature.name)
        try:
            return await self._engine.call(method, request, model, self.version)
        except ServingError as error:
            other = await self._engine.instead_of(self, error)
            if other is None or other.signatures.get(signature.name) != signature:
                raise self.spec.not_found() if error.code is Code.NOT_FOUND else error from None
        self.version = other.version
        request += write_model(model, self.version, signature.name)
        return await self._engine.call(method, request, model, self.version)
