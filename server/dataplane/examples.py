"""`:classify` and `:regress`: labels and values for examples of named features."""

from server.dataplane.answer import Answer
from server.dataplane.plane import DataPlane
from server.engines.base import CLASSIFY_METHOD, REGRESS_METHOD, ModelSpec, Servable
from server.errors import invalid
from server.wire.examples import (
    ExamplesRequest,
    decode_examples,
    encode_classify,
    encode_regress,
)

# An example costs so many times what a number of the same length in JSON does.
_WORK = 16


async def classify(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers a `:classify` request; errors as `decode_examples` and `Servable.classify`."""
    request = await _decode(plane, body)
    async with plane.lease(spec) as servable:
        check_method(servable, request.signature_name, CLASSIFY_METHOD, "classification")
        result = await servable.classify(request.signature_name, request.examples, request.context)
    classes, scores = result.classes, result.scores
    size = _WORK * sum(part.size for part in (classes, scores) if part is not None)
    encoded = await plane.codec.run(size, "encode", encode_classify, classes, scores)
    return Answer(encoded, servable.version)


async def regress(plane: DataPlane, spec: ModelSpec, body: bytes) -> Answer:
    """Answers a `:regress` request; errors as `decode_examples` and `Servable.regress`."""
    request = await _decode(plane, body)
    async with plane.lease(spec) as servable:
        check_method(servable, request.signature_name, REGRESS_METHOD, "regression")
        values = await servable.regress(request.signature_name, request.examples, request.context)
    return Answer(encode_regress(values), servable.version)


async def _decode(plane: DataPlane, body: bytes) -> ExamplesRequest:
    return await plane.codec.run(_WORK * len(body), "decode", decode_examples, body, plane.limits)


def check_method(servable: Servable, name: str, method: str, kind: str) -> None:
    """Refuses a signature that is not there, or is of another method; `kind` names the method."""
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if signature.method_name != method:
        raise invalid(
            f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}"
        )
