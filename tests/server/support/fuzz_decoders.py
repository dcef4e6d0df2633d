"""What reads bytes from outside, and a harness that feeds it with atheris.

`python -m tests.server.support.fuzz_decoders predict [CORPUS] [-max_total_time=60 …]`
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

if __name__ == "__main__":
    import atheris

    # Only what is fuzzed: to follow every library takes longer than to fuzz.
    followed = atheris.instrument_imports(include=["server"])
else:
    followed = contextlib.nullcontext()

with followed:
    from server.errors import ServingError
    from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
    from server.wire.examples import decode_examples
    from server.wire.limits import Limits
    from server.wire.lookup import decode_ids, decode_lookup
    from server.wire.media import layout_of
    from server.wire.npz import decode_npz, decode_predict_npz, encode_npz
    from server.wire.oip import decode_infer
    from server.wire.paths import parse_path, parse_v2_path
    from server.wire.predict import decode_predict
    from server.wire.raw_lookup import decode_npz_ids, decode_raw_ids
    from server.wire.timeouts import timeout_seconds

LIMITS = Limits(max_rank=8, max_elements=10_000, max_ids=1_000, max_bytes=1 << 20)
INT64, STRING = dtype_of_name("int64"), dtype_of_name("string")
INPUTS = {
    name: TensorSpec(name, dtype_of_name(dtype), (None, None))
    for name, dtype in (("x", "float"), ("ids", "int64"), ("name", "string"), ("flag", "bool"))
}
MANY = SignatureSpec("many", INPUTS, INPUTS)
ONE = SignatureSpec("one", {"x": INPUTS["x"]}, {"x": INPUTS["x"]})


def _lookup(data: bytes) -> None:
    request = decode_lookup(data, LIMITS)
    decode_ids(request.ids, INT64, LIMITS)
    decode_ids(request.ids, STRING, LIMITS)


def _head(data: bytes) -> None:
    first, _, rest = data.partition(b"\n")
    layout_of(first, rest, data)
    timeout_seconds(first, None, 1.0)
    timeout_seconds(None, first, 1.0)


def _path(data: bytes) -> None:
    for parse in (parse_path, parse_v2_path):
        for method in ("GET", "POST", "PUT"):
            try:
                parse(method, data)
            except ServingError:
                continue


def _npz(data: bytes) -> None:
    decode_npz(data, LIMITS)
    decode_npz_ids(data, INT64, LIMITS)


def _npy(data: bytes) -> None:
    """Fuzzes an array alone: in a damaged archive its checksum would stand before it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", data)
    decode_predict_npz(archive.getvalue(), ONE, LIMITS)


TARGETS: dict[str, Callable[[bytes], object]] = {
    "predict": lambda data: decode_predict(data, lambda _: ONE, LIMITS),
    "predict-named": lambda data: decode_predict(data, lambda _: MANY, LIMITS),
    "examples": lambda data: decode_examples(data, LIMITS),
    "lookup": _lookup,
    "infer": lambda data: decode_infer(data, lambda _: MANY, LIMITS),
    "npz": _npz,
    "npy": _npy,
    "raw": lambda data: decode_raw_ids(data, INT64, LIMITS),
    "ids": lambda data: decode_ids(msgspec.Raw(data), INT64, LIMITS),
    "head": _head,
    "path": _path,
}


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


_ROWS = b'{"signature_name": "s", "instances": [[1, -2.5e3], [NaN, 0]]}'
_NAMED = b'{"instances": [{"x": [1.5], "ids": [7], "name": ["a"], "flag": [true]}]}'
_COLUMNS = b'{"inputs": {"x": [[1]], "ids": [[-1]], "name": [{"b64": "/w=="}], "flag": [[false]]}}'
_EXAMPLES = b'{"context": {"c": 1}, "examples": [{"age": 2.5, "tags": ["a", {"b64": "AA=="}]}]}'
_BAGS = b'{"table": "t", "ids": [[7, "-9"], []], "combiner": "mean", "missing": "null"}'
_INFER = json.dumps({
    "id": "1",
    "inputs": [
        {"name": name, "datatype": datatype, "shape": [1, 1], "data": data}
        for name, datatype, data in (
            ("x", "FP32", [1.5]), ("ids", "INT64", [[7]]), ("name", "BYTES", ["a"]),
            ("flag", "BOOL", [True]),
        )
    ],
}).encode()  # fmt: skip
# What fuzzing begins with: a zip file is not found by chance.
SEEDS: dict[str, list[bytes]] = {
    "predict": [_ROWS, b'{"inputs": [[1.0]]}'],
    "predict-named": [_NAMED, _COLUMNS],
    "examples": [_EXAMPLES],
    "lookup": [_BAGS],
    "infer": [_INFER],
    "npz": [
        encode_npz({"ids": np.arange(3)}),
        encode_npz({"ids": np.arange(3, dtype=np.int8), "lengths": np.array([1, 2])}),
        encode_npz({"x": np.ones((2, 2), np.float16), "b": np.array(True)}),
    ],
    "npy": [_saved(np.ones((2, 1))), _saved(np.ones((1, 2), np.int8)), _saved(np.array(["a"]))],
    "raw": [np.arange(2).tobytes()],
    "ids": [b'[[1, "2"], [-3]]', b'["a", {"b64": "AA=="}]'],
    "head": [b"application/x-npz; q=1\n*/*, application/octet-stream", b"250m"],
    "path": [b"/v1/models/m/labels/l%2F:predict", b"/v2/models/m/versions/3/infer"],
}


def feed(target: str, data: bytes) -> None:
    """Feeds a decoder; a refusal must be a sentence, anything else raises."""
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
