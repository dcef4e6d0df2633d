"""`:predict`: tensors to tensors by any signature."""

from collections.abc import Mapping

from server.call import current_call
from server.dataplane.answer import Answer, codec
from server.engines.base import Engine, ModelSpec
from server.errors import invalid
from server.tensors import DEFAULT_SIGNATURE, SignatureSpec, Tensors
from server.wire.limits import Limits
from server.wire.media import PLAIN, Layout, Media
from server.wire.npz import decode_predict_npz, encode_npz
from server.wire.predict import Format, PredictRequest, decode_predict, encode_predict


async def predict(
    engine: Engine, spec: ModelSpec, body: bytes, limits: Limits, layout: Layout = PLAIN
) -> Answer:
    """Answers a `:predict` request.

    Args:
        engine: What runs the model.
        spec: The model asked for.
        body: The request: JSON, or a `.npz` with an array an input.
        limits: Bounds on the request.
        layout: What form request and answer have. The query's `int64=string` writes 64-bit
            integers as strings in JSON; `signature_name` is for a `.npz`.

    Raises:
        ServingError: See `decode_predict`, `Servable.run` and `encode_predict`.
    """
    if Media.RAW in (layout.request, layout.answer):
        raise invalid(
            "application/octet-stream is for :lookup: a :predict takes JSON or application/x-npz."
        )
    async with engine.lease(spec) as servable:
        signatures = servable.signatures
        request = await codec(len(body), lambda: _decode(body, signatures, limits, layout))
        current_call().rows = _rows(request.inputs)
        outputs = await servable.run(request.signature.name, request.inputs)
        version = servable.version
    size = sum(output.size for output in outputs.values())
    if layout.answer is Media.NPZ:
        content = await codec(size, lambda: encode_npz(outputs), "encode")
        return Answer(content, version, Media.NPZ.value)
    as_string = layout.query.get("int64") == "string"
    encoded = await codec(
        size, lambda: encode_predict(outputs, request.format, int64_as_string=as_string), "encode"
    )
    return Answer(encoded, version)


def find_signature(signatures: Mapping[str, SignatureSpec], name: str) -> SignatureSpec:
    """Returns the signature of a name; an INVALID_ARGUMENT `ServingError` if there is none."""
    try:
        return signatures[name]
    except KeyError:
        raise invalid(f'Serving signature name: "{name}" not found in signature def') from None


def _decode(
    body: bytes, signatures: Mapping[str, SignatureSpec], limits: Limits, layout: Layout
) -> PredictRequest:
    if layout.request is Media.JSON:
        return decode_predict(body, lambda name: find_signature(signatures, name), limits)
    signature = find_signature(signatures, layout.query.get("signature_name", DEFAULT_SIGNATURE))
    return PredictRequest(signature, Format.COLUMNAR, decode_predict_npz(body, signature, limits))


def _rows(inputs: Tensors) -> int:
    return max((len(array) for array in inputs.values() if array.ndim), default=1)
