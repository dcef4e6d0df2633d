"""The Open Inference Protocol's requests."""

import orjson

from server.call import current_call
from server.dataplane.answer import Answer, codec
from server.dataplane.predict import find_signature
from server.engines.base import Engine, ModelSpec, VersionState
from server.errors import ServingError
from server.tensors import DEFAULT_SIGNATURE
from server.wire.limits import Limits
from server.wire.oip import decode_infer, encode_infer, encode_model


async def infer(engine: Engine, spec: ModelSpec, body: bytes, limits: Limits) -> Answer:
    """Answers an inference request; errors as `decode_infer` and `Servable.run`."""
    async with engine.lease(spec) as servable:
        signatures = servable.signatures
        request = await codec(
            len(body),
            lambda: decode_infer(body, lambda name: find_signature(signatures, name), limits),
        )
        current_call().rows = max((len(a) for a in request.inputs.values() if a.ndim), default=1)
        outputs = await servable.run(request.signature.name, request.inputs)
        version = servable.version
    size = sum(output.size for output in outputs.values())
    encoded = await codec(
        size, lambda: encode_infer(spec.name, version, request, outputs), "encode"
    )
    return Answer(encoded, version)


async def describe(engine: Engine, spec: ModelSpec) -> Answer:
    """Answers with the inputs and outputs of a model's default signature."""
    async with engine.lease(spec) as servable:
        names = sorted(servable.signatures)
        name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in names or not names else names[0]
        signature = find_signature(servable.signatures, name)
        version = servable.version
    statuses = await engine.status(ModelSpec(spec.name))
    serving = sorted(s.version for s in statuses if s.state is VersionState.AVAILABLE)
    return Answer(encode_model(spec.name, serving, signature), version)


async def ready(engine: Engine, spec: ModelSpec) -> Answer:
    """Answers whether a model serves.

    Raises:
        ServingError: NOT_FOUND if it does not.
    """
    try:
        async with engine.lease(spec) as servable:
            return Answer(orjson.dumps({"name": spec.name, "ready": True}), servable.version)
    except ServingError as error:
        raise ServingError(error.code, f"Model {spec.name} is not ready. {error.message}") from None
