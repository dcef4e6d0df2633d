"""The Open Inference Protocol's requests."""

from collections.abc import Mapping

import orjson

from server.dataplane.answer import Answer
from server.dataplane.codec import work_of
from server.dataplane.plane import DataPlane
from server.dataplane.predict import find_signature, rows_of
from server.engines.base import ModelSpec, VersionState
from server.errors import ServingError
from server.request import current_request
from server.tensors import DEFAULT_SIGNATURE, SignatureSpec
from server.wire.limits import Limits
from server.wire.oip import InferRequest, decode_infer, encode_infer, encode_model


async def infer(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers an inference request; errors as `decode_infer` and `Servable.run`."""
    async with plane.lease(spec) as servable:
        request = await plane.codec.run(
            len(body), "decode", _decode, body, servable.signatures, plane.limits
        )
        current_request().rows = rows_of(request.inputs)
        outputs = await servable.run(request.signature.name, request.inputs)
        version = servable.version
    encoded = await plane.codec.run(
        work_of(outputs), "encode", encode_infer, spec.name, version, request, outputs
    )
    return Answer(encoded, version)


def _decode(body: bytes, signatures: Mapping[str, SignatureSpec], limits: Limits) -> InferRequest:
    return decode_infer(body, lambda name: find_signature(signatures, name), limits)


async def describe(plane: DataPlane, spec: ModelSpec) -> Answer:
    """Answers with the inputs and outputs of a model's default signature."""
    async with plane.lease(spec) as servable:
        names = sorted(servable.signatures)
        name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in names or not names else names[0]
        signature = find_signature(servable.signatures, name)
        version = servable.version
    statuses = await plane.engine.status(ModelSpec(spec.name))
    serving = sorted(s.version for s in statuses if s.state is VersionState.AVAILABLE)
    return Answer(encode_model(spec.name, serving, signature), version)


async def ready(plane: DataPlane, spec: ModelSpec) -> Answer:
    """Answers whether a model serves.

    Raises:
        ServingError: NOT_FOUND if it does not.
    """
    try:
        async with plane.lease(spec) as servable:
            return Answer(orjson.dumps({"name": spec.name, "ready": True}), servable.version)
    except ServingError as error:
        raise ServingError(error.code, f"Model {spec.name} is not ready. {error.message}") from None
