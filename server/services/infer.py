"""Requests of the Open Inference Protocol, over REST and gRPC."""

from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..dependencies import DataPlane, Lease
from ..engines.base import Servable, VersionState
from ..errors import ServingError, invalid
from ..request import Answer, ModelSpec, current_request
from ..tensors import BINARY_WORK, DEFAULT_SIGNATURE, Tensors, TensorSpec, written_work
from ..wire.codec import work_of
from ..wire.oip import HEADER, InferRequest, datatype_of, decode_infer, encode_infer, json_length
from ..wire.paths import RAW
from ..wire.predict import find_signature
from .lookup import infer_lookup
from .models import all_statuses
from .predict import rows_of

_PLATFORM = "tensorflow_savedmodel"
SERVER = {
    "name": "embedding-gateway",
    "version": __version__,
    "extensions": ["binary_tensor_data", "model_configuration", "model_repository"],
}


async def infer(
    plane: DataPlane, spec: ModelSpec, body: bytes, header: bytes | None = None
) -> Answer:
    """Answers an inference request; raises as `decode_infer` and `Servable.run`.

    `header` is the header `Inference-Header-Content-Length`, or None.
    """
    length = json_length(len(body), header)
    size = length + (len(body) - length) // BINARY_WORK
    request = await plane.codec.run(size, "decode", decode_infer, body, header, plane.limits)
    async with Lease(plane, spec) as servable:
        outputs = await run_infer(plane, servable, request)
        version = servable.version
    binary = request.outputs.values() or [request.parameters.binary_data_output]
    size = written_work(outputs) if all(binary) else work_of(outputs)
    encoded, json_size = await plane.codec.run(
        size, "encode", encode_infer, spec.name, version, request, outputs
    )
    if json_size is None:
        return Answer(encoded, version)
    return Answer(encoded, version, RAW, ((HEADER, b"%d" % json_size),))


async def run_infer(plane: DataPlane, servable: Servable, request: InferRequest) -> Tensors:
    """Runs the signature that a request names.

    A signature may look up ids in a table. Then `ids` may have any shape, and the answer holds one
    embedding per id in the same shape. With a combiner, it holds one embedding per bag of ids: a
    second input `lengths` divides a flat list of ids into bags, and without it each row of ids of
    rank 2 is a bag. The parameters `combiner` and `missing` work as in `:lookup`.

    Raises:
        ServingError: INVALID_ARGUMENT for inputs that do not match the signature; NOT_FOUND for
            unknown ids with `missing` "error"; see also `Servable.run`.
    """
    parameters = request.parameters
    signature = find_signature(servable.signatures, parameters.signature_name)
    # A lookup may also have the input `lengths`.
    optional = {"lengths"} if signature.is_table else set()
    if request.inputs.keys() - optional != signature.inputs.keys():
        raise invalid(
            f"inputs must be {', '.join(sorted(signature.inputs)) or 'empty'}, each once. "
            f"Received: {', '.join(request.inputs)[:128]}"
        )
    for name, spec in signature.inputs.items():
        array = request.inputs[name]
        if array.dtype != spec.dtype.numpy or not spec.dtype.numpy_name:
            raise invalid(
                f"Input {name} must have datatype {spec.dtype.datatype or spec.dtype.enum_name}. "
                f"Received: datatype={datatype_of(name, array)}"
            )
    for name in request.outputs:
        if name not in signature.outputs:
            raise invalid(
                f"outputs must be of {', '.join(sorted(signature.outputs))}. Received: {name[:128]}"
            )
    if signature.is_table:
        return await infer_lookup(plane, servable, signature, request)
    if (parameters.combiner, parameters.missing) != ("none", "default"):
        raise invalid(
            "The parameters combiner and missing must come with a signature de_lookup/TABLE. "
            f"Received: signature_name={signature.name}"
        )
    current_request().rows = rows_of(request.inputs)
    return await plane.run(servable, signature.name, request.inputs)


async def metadata(plane: DataPlane, spec: ModelSpec) -> tuple[dict[str, Any], int]:
    """Describes the inputs and outputs of a model's default signature; returns the version too."""
    async with Lease(plane, spec) as servable:
        names, version = sorted(servable.signatures), servable.version
        name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in names or not names else names[0]
        signature = find_signature(servable.signatures, name)
    statuses = await plane.engine.status(ModelSpec(spec.name))
    serving = sorted(s.version for s in statuses if s.state is VersionState.AVAILABLE)
    told = {
        "name": spec.name,
        "versions": [str(version) for version in serving],
        "platform": _PLATFORM,
        "inputs": _specs(signature.inputs),
        "outputs": _specs(signature.outputs),
    }
    return told, version


async def config(plane: DataPlane, spec: ModelSpec) -> tuple[dict[str, Any], int]:
    """Describes a model as Triton's configuration does, and returns the version.

    Some clients read the datatypes there.
    """
    described, version = await metadata(plane, spec)
    told: dict[str, Any] = {
        "name": spec.name,
        "platform": _PLATFORM,
        "backend": "tensorflow",
        # Zero means that the shapes include the batch dimension.
        "max_batch_size": 0,
    }
    for kind in ("input", "output"):
        told[kind] = [
            {
                "name": each["name"],
                "data_type": f"TYPE_{each['datatype']}".replace("BYTES", "STRING"),
                "dims": each["shape"],
            }
            for each in described[f"{kind}s"]
        ]
    return told, version


def _specs(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": spec.dtype.datatype,
            "shape": [-1 if size is None else size for size in spec.shape or ()],
        }
        for name, spec in sorted(specs.items())
        if spec.dtype.datatype
    ]


async def ready(plane: DataPlane, spec: ModelSpec) -> tuple[dict[str, Any], int]:
    """Tells that a model serves now, and returns its version.

    Raises:
        ServingError: NOT_FOUND if the model does not serve, UNAVAILABLE while it is being loaded.
    """
    try:
        async with Lease(plane, spec) as servable:
            return {"name": spec.name, "ready": True}, servable.version
    except ServingError as error:
        raise ServingError(error.code, f"Model {spec.name} is not ready. {error.message}") from None


_STATES = {VersionState.AVAILABLE: "READY", VersionState.LOADING: "LOADING"}


async def repository_index(plane: DataPlane, *, ready: bool = False) -> list[dict[str, str]]:
    """Lists all versions of all models; with `ready` only the versions that serve.

    A model without versions is one entry, whose version is empty.
    """
    listed = []
    async for name, statuses, reason in all_statuses(plane.engine):
        if reason and not ready:
            listed.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": reason})
        for status in statuses:
            state = _STATES.get(status.state, "UNAVAILABLE")
            if state == "READY" or not ready:
                entry = {"name": name, "version": str(status.version), "state": state}
                listed.append({**entry, "reason": status.message} if status.message else entry)
    return listed
