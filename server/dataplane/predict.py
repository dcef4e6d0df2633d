"""`:predict`: tensors to tensors by any signature."""

from collections.abc import Mapping

from server.dataplane.answer import Answer
from server.dataplane.codec import work_of
from server.dataplane.plane import DataPlane
from server.engines.base import ModelSpec
from server.errors import invalid
from server.request import current_request
from server.tensors import DEFAULT_SIGNATURE, SignatureSpec, Tensors
from server.wire.limits import Limits
from server.wire.media import PLAIN, Layout, Media
from server.wire.npz import decode_predict_npz, encode_npz
from server.wire.predict import Format, PredictRequest, decode_predict, encode_predict

# Bytes are written so many times faster than JSON.
_NPZ_WORK = 16


async def predict(plane: DataPlane, spec: ModelSpec, body: bytes, layout: Layout = PLAIN) -> Answer:
    """Answers a `:predict` request.

    Args:
        plane: Leases the model.
        spec: The model asked for.
        body: The request: JSON, or a `.npz` with an array an input.
        layout: What form request and answer have. The query's `int64=string` writes 64-bit
            integers as strings in JSON; `signature_name` is for a `.npz`.

    Raises:
        ServingError: See `decode_predict`, `Servable.run` and `encode_predict`.
    """
    if Media.RAW in (layout.request, layout.answer):
        raise invalid(
            "application/octet-stream is for :lookup: a :predict takes JSON or application/x-npz."
        )
    async with plane.lease(spec) as servable:
        request = await plane.codec.run(
            len(body), "decode", _decode, body, servable.signatures, plane.limits, layout
        )
        current_request().rows = rows_of(request.inputs)
        outputs = await servable.run(request.signature.name, request.inputs)
        version = servable.version
    size = work_of(outputs)
    if layout.answer is Media.NPZ:
        content = await plane.codec.run(size // _NPZ_WORK, "encode", encode_npz, outputs)
        return Answer(content, version, Media.NPZ.value)
    as_string = layout.query.get("int64") == "string"
    encoded = await plane.codec.run(
        size, "encode", encode_predict, outputs, request.format, as_string
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


def rows_of(inputs: Tensors) -> int:
    """Returns the number of rows that inputs hold."""
    return max((len(array) for array in inputs.values() if array.ndim), default=1)
