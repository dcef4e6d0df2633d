"""`:predict`: runs any signature on tensors."""

from ..dependencies import DataPlane, Lease
from ..errors import invalid
from ..request import Answer, ModelSpec, current_request
from ..tensors import Tensors
from ..wire.codec import work_of
from ..wire.paths import Layout
from ..wire.predict import decode_predict, encode_predict


async def predict(plane: DataPlane, spec: ModelSpec, body: bytes, layout: Layout) -> Answer:
    """Answers a `:predict` request.

    `int64=string` in the query of `layout` writes 64-bit integers as strings. Request and answer
    are JSON, whatever the headers say.

    Raises:
        ServingError: See `decode_predict`, `Servable.run` and `encode_predict`.
    """
    integers = layout.query.get("int64", "string")
    if integers != "string":
        raise invalid(f"The parameter int64 must be string. Received: {integers[:128]}")
    async with Lease(plane, spec) as servable:
        request = await plane.codec.run(
            len(body), "decode", decode_predict, body, servable.signatures, plane.limits
        )
        current_request().rows = rows_of(request.inputs)
        outputs = await plane.run(servable, request.signature.name, request.inputs)
    as_string = "int64" in layout.query
    encoded = await plane.codec.run(
        work_of(outputs), "encode", encode_predict, outputs, request.key, as_string
    )
    return Answer(encoded, servable.version)


def rows_of(inputs: Tensors) -> int:
    """Returns the number of rows of the inputs; 1 if all are scalars."""
    return max([len(array) for array in inputs.values() if array.ndim], default=1)
