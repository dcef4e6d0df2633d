"""The Open Inference Protocol, version 2: tensors with explicit datatype and shape.

A request is JSON, or JSON followed by the tensors' bytes (the binary tensor data extension). With
bytes, the header `Inference-Header-Content-Length` gives the length of the JSON, and
`binary_data_size` gives the number of bytes of each such input. The bytes follow in the order of
the inputs.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
import orjson
from msgspec import Meta

from ..errors import ServingError, invalid, unimplemented
from ..limits import Limits
from ..tensors import DEFAULT_SIGNATURE, DTYPES, Array, DType, Tensors, dtype_of_numpy
from .json_tensors import decode_value, json_ready
from .json_text import parse_json
from .lookup import Combiner, Missing
from .tensor_bytes import array_of_bytes, octets

# The header with the length of the JSON part.
HEADER = b"inference-header-content-length"

# The element types by the protocol's datatype, sorted: an error and the OpenAPI document list them.
BY_DATATYPE = dict(sorted((dtype.datatype, dtype) for dtype in DTYPES if dtype.datatype))


class TensorParameters(msgspec.Struct):
    """Parameters of an input or output."""

    binary_data_size: Annotated[
        int | None, Meta(description="Size of the input's bytes, which follow the JSON.")
    ] = None
    binary_data: Annotated[bool | None, Meta(description="True to get the output as bytes.")] = None
    # The gateway supports neither of these. They are declared so that it can refuse them.
    classification: int = 0
    shared_memory_region: str = ""


class InputTensor(msgspec.Struct):
    """An input in JSON."""

    name: str
    datatype: Annotated[str, Meta(extra_json_schema={"enum": list(BY_DATATYPE)})]
    shape: list[Annotated[int, Meta(extra_json_schema={"minimum": 0})]]
    data: Annotated[
        Any,
        Meta(
            description="Flat in row-major order, or nested. Omitted if bytes follow the JSON.",
            extra_json_schema={"type": "array", "items": {}},
        ),
    ] = msgspec.UNSET
    parameters: TensorParameters = msgspec.field(default_factory=TensorParameters)


class RequestedOutput(msgspec.Struct):
    """A requested output."""

    name: str
    parameters: TensorParameters = msgspec.field(default_factory=TensorParameters)


class RequestParameters(msgspec.Struct):
    """Parameters of a request. `combiner` and `missing` are for lookups, as in `:lookup`."""

    signature_name: Annotated[str, Meta(description="The signature to run.")] = DEFAULT_SIGNATURE
    binary_data_output: Annotated[
        bool, Meta(description="True to get outputs as bytes by default.")
    ] = False
    combiner: Combiner = "none"
    missing: Missing = "default"


class InferBody(msgspec.Struct):
    """The JSON of an inference request."""

    inputs: list[InputTensor]
    id: str | None = None
    outputs: list[RequestedOutput] = []
    parameters: RequestParameters = msgspec.field(default_factory=RequestParameters)


_REQUEST = msgspec.json.Decoder(InferBody)


class InferRequest(NamedTuple):
    """A decoded request.

    Attributes:
        inputs: The tensors by name, with the element types that the client declared.
        outputs: The requested outputs, and whether to send each as bytes; all outputs if empty.
        parameters: The signature to run, and options of the answer.
        id: Returned with the answer.
    """

    inputs: dict[str, Array]
    outputs: Mapping[str, bool]
    parameters: RequestParameters
    id: str | None


def decode_infer(body: bytes, header: bytes | None, limits: Limits) -> InferRequest:
    """Decodes the body of an inference request.

    `header` is the header `Inference-Header-Content-Length`; None if the whole body is JSON.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the input.
    """
    length = json_length(len(body), header)
    text, rest = body[:length], memoryview(body)[length:]
    limits.check_elements(text)
    try:
        request = _REQUEST.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        document = parse_json(text)  # names a syntax error and its place; accepts NaN
        try:
            request = msgspec.convert(document, InferBody)
        except (msgspec.ValidationError, RecursionError) as error:
            raise invalid(
                "An inference request must be an object with `inputs`, each with `name`, "
                f"`datatype`, `shape` and `data`. Received: {error}"
            ) from None
    # Check the total first, so that no input is read of a request with too many values.
    if len(request.inputs) > 1:
        limits.check_count(sum(_count(tensor, limits) for tensor in request.inputs))
    inputs: dict[str, Array] = {}
    for tensor in request.inputs:
        read, rest = _reader(tensor, rest, limits)
        add_input(inputs, tensor, read, limits)
    if rest:
        raise invalid(
            "The bytes after the JSON must match binary_data_size of the inputs. "
            f"Received: {len(rest)} bytes more"
        )
    outputs: dict[str, bool] = {}
    for output in request.outputs:
        _check_supported(output.name, output.parameters)
        wished = output.parameters.binary_data
        outputs[output.name] = request.parameters.binary_data_output if wished is None else wished
    return InferRequest(inputs, outputs, request.parameters, request.id)


def json_length(size: int, header: bytes | None) -> int:
    """Returns the length of the JSON in a body of `size` bytes; `header` as for `decode_infer`.

    Raises:
        ServingError: INVALID_ARGUMENT for a header that is no such length.
    """
    if header is None:
        return size
    # Python refuses to convert thousands of digits: check the length first.
    if not header.isdigit() or len(header) > 19 or int(header) > size:
        raise invalid(
            "Inference-Header-Content-Length must be the length of the body's JSON, at most "
            f"{size} bytes. Received: {header[:128].decode('latin-1')}"
        )
    return int(header)


def decode_index(body: bytes, limits: Limits) -> bool:
    """Returns whether a request for the list of models wants only those that serve.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    limits.check_elements(body)
    return bool(body) and parse_json(body).get("ready") is True


def add_input(
    inputs: dict[str, Array], tensor: Any, read: Callable[[DType, int], Array], limits: Limits
) -> None:
    """Reads an input, and adds it to the inputs of its request.

    `tensor` declares `name`, `datatype`, such as `INT64`, and `shape`. `read` reads the values,
    given their element type and number.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the input.
    """
    name, datatype = tensor.name, tensor.datatype
    dtype = BY_DATATYPE.get(datatype)
    if name in inputs:
        raise invalid(f"Each input must occur once. Received twice: {name[:128]}")
    if dtype is None:
        raise invalid(
            f"Input {name} must have a datatype of {', '.join(BY_DATATYPE)}. "
            f"Received: datatype={datatype[:128]}"
        )
    count = _count(tensor, limits)
    try:
        array = read(dtype, count)
    except (OverflowError, ValueError):
        raise invalid(f"Input {name} must hold values of {datatype}") from None
    except ServingError as error:
        raise ServingError(error.code, f"Input {name}: {error.message}") from None
    if array.size != count:
        raise invalid(
            f"Input {name} must have {count} values for its shape. Received: {array.size} values"
        )
    inputs[name] = array.reshape(tuple(tensor.shape))


def _count(tensor: Any, limits: Limits) -> int:
    shape = list(tensor.shape)
    limits.check_rank(len(shape))
    # numpy cannot reshape to sizes with a huge product, even if another size is 0.
    if min(shape, default=0) < 0 or math.prod(filter(None, shape)) > limits.max_elements:
        raise invalid(
            f"Input {tensor.name} must have a shape of at most {limits.max_elements} values. "
            f"Received: shape={shape}"
        )
    return math.prod(shape)


def _reader(
    tensor: InputTensor, rest: memoryview, limits: Limits
) -> tuple[Callable[[DType, int], Array], memoryview]:
    """Returns the function that reads a tensor's values, and the bytes after the tensor's bytes."""
    _check_supported(tensor.name, tensor.parameters)
    size = tensor.parameters.binary_data_size
    is_json = tensor.data is not msgspec.UNSET
    if is_json and size is None:
        return lambda dtype, _: decode_value(tensor.data, dtype, limits), rest
    if is_json or size is None:
        raise invalid(
            f"Input {tensor.name} must have either `data` or the parameter binary_data_size. "
            f"Received: {'neither' if size is None else 'both'}"
        )
    if not 0 <= size <= len(rest):
        raise invalid(
            f"binary_data_size of input {tensor.name} must be from 0 to {len(rest)}, the bytes "
            "that follow the JSON and the inputs before: Inference-Header-Content-Length says "
            f"where they begin. Received: {size}"
        )
    return functools.partial(array_of_bytes, rest[:size]), rest[size:]


def _check_supported(name: str, parameters: TensorParameters) -> None:
    if parameters.shared_memory_region:
        raise unimplemented(f"Tensor {name} must be in the request: shared memory is not supported")
    if parameters.classification:
        raise unimplemented(f"Output {name} cannot be classified here: use `:classify`")


def datatype_of(name: str, array: Array) -> str:
    """Returns the protocol's name for the element type of an output.

    Raises:
        ServingError: UNIMPLEMENTED if there is none.
    """
    datatype = dtype_of_numpy(array.dtype).datatype
    if not datatype:
        raise unimplemented(f"Output {name} has no datatype of this protocol")
    return datatype


def encode_infer(
    model: str, version: int, request: InferRequest, outputs: Tensors
) -> tuple[bytes | tuple[bytes | Array, ...], int | None]:
    """Encodes the answer: data in row-major order, not nested.

    Returns:
        The body or its parts as `Answer` has them, and the length of its JSON part; None if all of
        it is JSON.
    """
    everything = request.parameters.binary_data_output
    wanted = request.outputs or dict.fromkeys(sorted(outputs), everything)
    described = []
    parts: list[Array] = []
    for name, binary in wanted.items():
        array = outputs[name]
        entry: dict[str, Any] = {
            "name": name,
            "datatype": datatype_of(name, array),
            "shape": list(array.shape),
        }
        if binary:
            parts.append(octets(array))
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            entry["data"] = json_ready("", array.reshape(-1))  # strings, whatever their name
        described.append(entry)
    answer: dict[str, Any] = {
        "model_name": model,
        "model_version": str(version),
        "outputs": described,
    }
    if request.id is not None:
        answer["id"] = request.id
    text = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(wanted.values()):
        return text, None
    return (text, *parts), len(text)
