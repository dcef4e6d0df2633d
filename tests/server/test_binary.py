"""Requests and answers as bytes: `.npz`, and little-endian ids and rows."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from server.app import create_app
from server.errors import ServingError
from server.settings import load_settings
from server.wire.limits import Limits
from server.wire.npz import decode_npz, encode_npz
from tests.server.support.asgi import ask
from tests.server.support.numpy_engine import NumpyEngine

NPZ, RAW = "application/x-npz", "application/octet-stream"
LOOKUP = "/v1/models/m:lookup?table=user"


@pytest.fixture
def app():
    return create_app(load_settings(model_dir="x"), NumpyEngine())


def post(app, path, body, kind, accept=""):
    headers = {"content-type": kind, **({"accept": accept} if accept else {})}
    return ask(app, "POST", path, body, headers=headers)


def arrays(reply):
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == NPZ
    with np.load(io.BytesIO(reply.body), allow_pickle=False) as content:
        return dict(content)


def test_lookup_in_bytes_says_what_json_says(app):
    ids = np.array([7, 2**53 + 1, 1], "<i8")
    reply = post(app, LOOKUP, ids.tobytes(), RAW, RAW)
    shape = tuple(map(int, reply.headers["x-embeddings-shape"].split(",")))
    dtype = np.dtype(reply.headers["x-embeddings-dtype"])
    split = dtype.itemsize * shape[0] * shape[1]
    rows = np.frombuffer(reply.body[:split], dtype).reshape(shape)
    found = np.frombuffer(reply.body[split:], np.uint8)
    same = ask(app, "POST", LOOKUP, json.dumps({"table": "user", "ids": ids.tolist()}).encode())
    assert rows.tolist() == same.json()["embeddings"]
    assert found.astype(bool).tolist() == same.json()["found"]
    assert reply.headers["x-model-version"] == "3"


def test_lookup_in_npz_takes_bags_and_strings(app):
    body = encode_npz({"ids": np.array([7, 8, 1]), "lengths": np.array([2, 0, 1])})
    pooled = arrays(post(app, f"{LOOKUP}&combiner=mean&missing=null", body, NPZ, NPZ))
    np.testing.assert_array_equal(pooled["embeddings"], [[2, 4], [np.nan] * 2, [np.nan] * 2])
    square = encode_npz({"ids": np.array([[7, 8], [8, 7]], np.int32)})
    summed = arrays(post(app, f"{LOOKUP}&combiner=sum", square, NPZ, NPZ))
    assert summed["embeddings"].tolist() == [[4, 8], [4, 8]]
    names = encode_npz({"ids": np.array(["lamp", "?"])})
    item = arrays(post(app, "/v1/models/m:lookup?table=item", names, NPZ, NPZ))
    assert item["found"].tolist() == [True, False]


def test_the_answer_alone_may_be_binary_and_the_request_too(app):
    body = json.dumps({"table": "user", "ids": [7]}).encode()
    reply = ask(app, "POST", "/v1/models/m:lookup", body, headers={"accept": f"text/x, {NPZ}"})
    assert arrays(reply)["embeddings"].tolist() == [[1, 2]]
    plain = post(app, LOOKUP, np.array([7], "<i8").tobytes(), RAW)
    assert plain.json() == {"embeddings": [[1.0, 2.0]], "found": [True]}


def test_predict_in_npz(app):
    body = encode_npz({"a": np.array([1, 2], np.int16), "s": np.array([b"x", b"\xff"])})
    reply = post(app, "/v1/models/m:predict?signature_name=both", body, NPZ, NPZ)
    out = arrays(reply)
    assert out["a"].tolist() == [1, 2]
    assert out["a"].dtype == np.int64
    assert out["s_bytes"].tolist() == [b"x", b"\xff"]
    default = post(app, "/v1/models/m:predict", encode_npz({"x": np.array([2.0])}), NPZ)
    assert default.json() == {"outputs": [3.0]}


def test_a_string_that_numpy_would_cut_is_not_told_in_npz(app):
    body = b'{"signature_name": "both", "inputs": {"a": [1], "s": [{"b64": "eAA="}]}}'
    reply = ask(app, "POST", "/v1/models/m:predict", body, headers={"accept": NPZ})
    assert reply.status == 400
    assert reply.error.endswith("Received: output=s_bytes")
    assert "Accept: application/json" in reply.error


@pytest.mark.parametrize(
    ("path", "kind", "body", "error"),
    [
        (LOOKUP, RAW, b"1234567", "ids of 8 bytes each"),
        ("/v1/models/m:lookup?table=item", RAW, b"", "send application/x-npz or JSON"),
        (f"{LOOKUP}&combiner=max", RAW, b"", "combiner must be one of none, sum, mean, sqrtn"),
        (f"{LOOKUP}&combiner=sum", RAW, bytes(8), "needs `ids` to be a list of lists"),
        (LOOKUP, NPZ, b"PK", "The body must be a .npz"),
        (LOOKUP, NPZ, encode_npz({"id": np.array([1])}), "must hold the array ids"),
        (LOOKUP, NPZ, encode_npz({"ids": np.array([1.5])}), "must hold values of type int64"),
        (LOOKUP, NPZ, encode_npz({"ids": np.array([2**63], np.uint64)}), "of type int64"),
        (LOOKUP, NPZ, encode_npz({"ids": np.array([1]), "lengths": np.array([2])}), "sum is the"),
        (LOOKUP, NPZ, encode_npz({"ids": np.zeros((1, 1, 1), int)}), "1 or 2 dimensions"),
        ("/v1/models/m:predict", NPZ, encode_npz({"y": np.array([1])}), "must hold the arrays x"),
        ("/v1/models/m:predict", RAW, b"", "is for :lookup"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(app, path, kind, body, error):
    reply = post(app, path, body, kind)
    assert reply.status == 400
    assert error in reply.error


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def header(text: str) -> bytes:
    padded = text.ljust(118 - 10 + 10).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


@pytest.mark.parametrize(
    "body",
    [
        zipped("ids.npy", bytes(100_000_000)),
        zipped("ids.npy", header("{'descr': '<i8', 'fortran_order': False, 'shape': (2**60,), }")),
        zipped("ids.npy", header("{'descr': '<i8', 'fortran_order': False, 'shape': (9**18,), }")),
        zipped("ids.npy", header("{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }")),
        zipped("ids.npy", header("{'descr': '|O', 'fortran_order': False, 'shape': (), }")),
        zipped("ids.npy", header("__import__('os')")),
        zipped("ids.npy", header("[" * 100)),
        zipped("../../ids.npy", b""),
    ],
)
def test_an_archive_is_not_trusted(body):
    with pytest.raises(ServingError) as caught:
        decode_npz(body, Limits())
    assert caught.value.code.value == "INVALID_ARGUMENT"


def test_too_many_values_are_refused():
    with pytest.raises(ServingError, match="at most 10 values"):
        decode_npz(encode_npz({"a": np.zeros(6), "b": np.zeros(6)}), Limits(max_elements=10))
