"""The decoders of bytes from outside, and a harness that fuzzes them with atheris.

`python -m tests.server.support.fuzz_decoders predict [CORPUS] [-max_total_time=60 …]`
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    import atheris

    # Instrument only the fuzzed modules: instrumenting every library takes longer than fuzzing.
    followed = atheris.instrument_imports(include=["server"])
else:
    followed = contextlib.nullcontext()

with followed:
    from server.dependencies import timeout_seconds
    from server.errors import ServingError
    from server.limits import Limits
    from server.protos.examples import read_json_examples
    from server.protos.inference import read_infer
    from server.protos.modules import load_protos
    from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
    from server.wire.json_text import parse_value
    from server.wire.lookup import decode_ids, decode_lookup, decode_raw_ids
    from server.wire.oip import decode_infer
    from server.wire.paths import layout_of, parse_path, parse_v2_path
    from server.wire.predict import decode_predict

LIMITS = Limits(max_rank=8, max_elements=10_000, max_ids=1_000, max_bytes=1 << 20)
INT64, STRING = dtype_of_name("int64"), dtype_of_name("string")
INPUTS = {
    name: TensorSpec(name, dtype_of_name(dtype), (None, None))
    for name, dtype in (("x", "float"), ("ids", "int64"), ("name", "string"), ("flag", "bool"))
}
NAMES = ("serving_default", "s")
MANY = dict.fromkeys(NAMES, SignatureSpec("many", INPUTS, INPUTS))
ONE = dict.fromkeys(NAMES, SignatureSpec("one", {"x": INPUTS["x"]}, {"x": INPUTS["x"]}))


def _lookup(data: bytes) -> None:
    request = decode_lookup(data, LIMITS)
    decode_ids(request.ids, INT64, LIMITS)
    decode_ids(request.ids, STRING, LIMITS)


def _head(data: bytes) -> None:
    first, _, rest = data.partition(b"\n")
    layout_of(first, rest, data)
    timeout_seconds({b"x-request-timeout-ms": first}, 1.0)
    timeout_seconds({b"grpc-timeout": first}, 1.0)


def _path(data: bytes) -> None:
    for method in ("GET", "POST", "PUT"):
        with contextlib.suppress(ServingError):
            parse_path(method, data)
    parse_v2_path(data)


def _infer_bytes(data: bytes) -> None:
    header, _, body = data.partition(b"\n")
    decode_infer(body, header, LIMITS)


TARGETS: dict[str, Callable[[bytes], object]] = {
    "predict": lambda data: decode_predict(data, ONE, LIMITS),
    "predict-named": lambda data: decode_predict(data, MANY, LIMITS),
    "examples": lambda data: read_json_examples(data, LIMITS),
    "lookup": _lookup,
    "infer": lambda data: decode_infer(data, None, LIMITS),
    "infer-bytes": _infer_bytes,
    "infer-message": lambda data: read_infer(data, LIMITS),
    "raw": lambda data: decode_raw_ids(data, INT64, LIMITS),
    "ids": lambda data: decode_ids(parse_value(data), INT64, LIMITS),
    "head": _head,
    "path": _path,
}


_ROWS = b'{"signature_name": "s", "instances": [[1, -2.5e3], [NaN, 0]]}'
_NAMED = b'{"instances": [{"x": [1.5], "ids": [7], "name": ["a"], "flag": [true]}]}'
_COLUMNS = b'{"inputs": {"x": [[1]], "ids": [[-1]], "name": [{"b64": "/w=="}], "flag": [[false]]}}'
_EXAMPLES = b'{"context": {"c": 1}, "examples": [{"age": 2.5, "tags": ["a", {"b64": "AA=="}]}]}'
_BAGS = b'{"table": "t", "ids": [[7, "-9"], []], "combiner": "mean", "missing": "null"}'
_INFER = (
    b'{"id": "1", "inputs": ['
    b'{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.5]},'
    b'{"name": "ids", "datatype": "INT64", "shape": [1, 1], "data": [[7]]},'
    b'{"name": "name", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]},'
    b'{"name": "flag", "datatype": "BOOL", "shape": [1, 1], "data": [true]}]}'
)
_BYTES = (
    b'{"parameters": {"binary_data_output": true}, "inputs": ['
    b'{"name": "x", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}},'
    b'{"name": "ids", "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}},'
    b'{"name": "name", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}]}'
)
_MESSAGE = load_protos().ModelInferRequest(
    model_name="m",
    inputs=[
        {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.5]}},
        {"name": "s", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"a"]}},
    ],
)
# The fuzzer starts with these valid requests. It would not find such requests by chance.
SEEDS: dict[str, list[bytes]] = {
    "predict": [_ROWS, b'{"inputs": [[1.0]]}'],
    "predict-named": [_NAMED, _COLUMNS],
    "examples": [_EXAMPLES],
    "lookup": [_BAGS],
    "infer": [_INFER],
    "infer-bytes": [b"%d\n%b" % (len(_BYTES), _BYTES + bytes(16) + b"\1\0\0\0a")],
    "infer-message": [_MESSAGE.SerializeToString()],
    "raw": [np.arange(2).tobytes()],
    "ids": [b'[[1, "2"], [-3]]', b'["a", {"b64": "AA=="}]'],
    "head": [b"application/octet-stream; q=1\n*/*, application/octet-stream", b"250m"],
    "path": [b"/v1/models/m/labels/l%2F:predict", b"/v2/models/m/versions/3/infer"],
}


def feed(target: str, data: bytes) -> None:
    """Runs a decoder on bytes. A refusal must be a sentence; any other exception is a bug."""
    try:
        TARGETS[target](data)
    except ServingError as error:
        message = error.message
    else:
        return
    assert message
    assert len(message) < 5_000 + len(data)


def main() -> None:
    target = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(SEEDS[target]):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, folder], lambda data: feed(target, data))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
