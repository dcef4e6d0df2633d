"""`:predict`: tensors to tensors by any signature."""

from collections.abc import Mapping

from server.engines.base import Engine, ModelSpec
from server.errors import invalid
from server.handlers.answer import Answer, codec
from server.tensors import SignatureSpec
from server.wire.limits import Limits
from server.wire.predict import decode_predict, encode_predict


async def predict(
    engine: Engine, spec: ModelSpec, body: bytes, limits: Limits, *, int64_as_string: bool = False
) -> Answer:
    """Answers a `:predict` request.

    Args:
        engine: What runs the model.
        spec: The model asked for.
        body: The request, JSON.
        limits: Bounds on the request.
        int64_as_string: Whether 64-bit integers are written as strings.

    Raises:
        ServingError: See `decode_predict`, `Servable.run` and `encode_predict`.
    """
    async with engine.lease(spec) as servable:
        signatures = servable.signatures
        request = await codec(
            len(body),
            lambda: decode_predict(body, lambda name: find_signature(signatures, name), limits),
        )
        outputs = await servable.run(request.signature.name, request.inputs)
    size = sum(output.size for output in outputs.values())
    encoded = await codec(
        size, lambda: encode_predict(outputs, request.format, int64_as_string=int64_as_string)
    )
    return Answer(encoded, servable.version)


def find_signature(signatures: Mapping[str, SignatureSpec], name: str) -> SignatureSpec:
    """Returns the signature of a name; an INVALID_ARGUMENT `ServingError` if there is none."""
    try:
        return signatures[name]
    except KeyError:
        raise invalid(f'Serving signature name: "{name}" not found in signature def') from None
