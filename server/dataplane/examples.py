"""`:classify` and `:regress`: labels and values for examples of named features."""

from server.dataplane.answer import Answer, codec
from server.engines.base import CLASSIFY_METHOD, REGRESS_METHOD, Engine, ModelSpec, Servable
from server.errors import invalid
from server.wire.examples import decode_examples, encode_classify, encode_regress
from server.wire.limits import Limits


async def classify(engine: Engine, spec: ModelSpec, body: bytes, limits: Limits) -> Answer:
    """Answers a `:classify` request; errors as `decode_examples` and `Servable.classify`."""
    request = await codec(len(body), lambda: decode_examples(body, limits))
    async with engine.lease(spec) as servable:
        _check_method(servable, request.signature_name, CLASSIFY_METHOD, "classification")
        result = await servable.classify(request.signature_name, request.examples, request.context)
    return Answer(encode_classify(result.classes, result.scores), servable.version)


async def regress(engine: Engine, spec: ModelSpec, body: bytes, limits: Limits) -> Answer:
    """Answers a `:regress` request; errors as `decode_examples` and `Servable.regress`."""
    request = await codec(len(body), lambda: decode_examples(body, limits))
    async with engine.lease(spec) as servable:
        _check_method(servable, request.signature_name, REGRESS_METHOD, "regression")
        values = await servable.regress(request.signature_name, request.examples, request.context)
    return Answer(encode_regress(values), servable.version)


def _check_method(servable: Servable, name: str, method: str, kind: str) -> None:
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if signature.method_name != method:
        raise invalid(
            f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}"
        )
