"""The Open Inference Protocol's GRPCInferenceService, for clients of Triton and KServe."""

from typing import Any

from ..dependencies import RUN_SCOPES, DataPlane, Lease
from ..errors import Code, ServingError, invalid
from ..protos.inference import SERVICE, read_infer, write_infer
from ..protos.modules import load_protos, parse
from ..request import ModelSpec, Request
from ..services import infer
from ..tensors import BINARY_WORK, written_work
from .exchange import service


class InferenceService:
    """ModelInfer, and the health and metadata calls that clients send before it."""

    def __init__(self, plane: DataPlane) -> None:
        """Creates the service of a data plane."""
        self._plane = plane
        self.handler = service(
            plane,
            SERVICE,
            ServerLive=("live", None, self._live),
            ServerReady=("ready", None, self._ready),
            ServerMetadata=("describe", None, self._server),
            ModelReady=("ready", ("predict",), self._model_ready),
            ModelMetadata=("describe", ("predict",), self._metadata),
            ModelConfig=("config", ("predict",), self._config),
            RepositoryIndex=("index", ("predict",), self._index),
            ModelInfer=("infer", RUN_SCOPES, self._infer),
        )

    async def _live(self, _: Request, __: bytes) -> bytes:
        return _message("ServerLiveResponse", live=True)

    async def _ready(self, _: Request, __: bytes) -> bytes:
        return _message("ServerReadyResponse", ready=self._plane.ready())

    async def _server(self, _: Request, __: bytes) -> bytes:
        return _message("ServerMetadataResponse", **infer.SERVER)

    async def _model_ready(self, request: Request, body: bytes) -> bytes:
        spec = _spec_of("ModelReadyRequest", request, body)
        try:
            await infer.ready(self._plane, spec)
        except ServingError as error:
            if error.code not in (Code.NOT_FOUND, Code.UNAVAILABLE):
                raise
            return _message("ModelReadyResponse", ready=False)
        return _message("ModelReadyResponse", ready=True)

    async def _metadata(self, request: Request, body: bytes) -> bytes:
        spec = _spec_of("ModelMetadataRequest", request, body)
        told, _ = await infer.metadata(self._plane, spec)
        return _message("ModelMetadataResponse", **told)

    async def _config(self, request: Request, body: bytes) -> bytes:
        spec = _spec_of("ModelConfigRequest", request, body)
        told, _ = await infer.config(self._plane, spec)
        return _message("ModelConfigResponse", config=told)

    async def _index(self, _: Request, body: bytes) -> bytes:
        wanted = parse(load_protos().RepositoryIndexRequest, body)
        listed = await infer.repository_index(self._plane, ready=wanted.ready)
        return _message("RepositoryIndexResponse", models=listed)

    async def _infer(self, request: Request, body: bytes) -> bytes:
        codec = self._plane.codec
        model, version, asked = await codec.run(
            len(body) // BINARY_WORK, "decode", read_infer, body, self._plane.limits
        )
        spec = _spec(model, version, request)
        async with Lease(self._plane, spec) as servable:
            outputs = await infer.run_infer(self._plane, servable, asked)
        size = written_work(outputs)
        return await codec.run(size, "encode", write_infer, model, servable.version, asked, outputs)


def _message(name: str, /, **fields: Any) -> bytes:
    return bytes(getattr(load_protos(), name)(**fields).SerializeToString())


def _spec_of(name: str, request: Request, body: bytes) -> ModelSpec:
    message = parse(getattr(load_protos(), name), body)
    return _spec(message.name, message.version, request)


def _spec(name: str, version: str, request: Request) -> ModelSpec:
    if version and not (version.isdecimal() and len(version) <= 19 and int(version) < 2**63):
        raise invalid(f"A version must be a number. Received: version={version[:128]}")
    request.model = name
    return ModelSpec(name, int(version) if version else None)
