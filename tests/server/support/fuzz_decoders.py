"""What reads bytes from outside, and a harness that feeds it with atheris.

`python -m tests.server.support.fuzz_decoders predict [CORPUS] [-max_total_time=60 …]`
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

import msgspec

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
    from server.wire.npz import decode_npz
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


TARGETS: dict[str, Callable[[bytes], object]] = {
    "predict": lambda data: decode_predict(data, lambda _: ONE, LIMITS),
    "predict-named": lambda data: decode_predict(data, lambda _: MANY, LIMITS),
    "examples": lambda data: decode_examples(data, LIMITS),
    "lookup": _lookup,
    "infer": lambda data: decode_infer(data, lambda _: MANY, LIMITS),
    "npz": _npz,
    "raw": lambda data: decode_raw_ids(data, INT64, LIMITS),
    "ids": lambda data: decode_ids(msgspec.Raw(data), INT64, LIMITS),
    "head": _head,
    "path": _path,
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
    atheris.Setup(sys.argv, lambda data: feed(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
