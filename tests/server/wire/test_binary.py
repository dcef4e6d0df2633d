"""Tests lookups in bytes: little-endian ids and rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from server.app import create_app
from server.settings import load_settings
from tests.server.support.asgi import ask
from tests.server.support.numpy_engine import NumpyEngine

RAW = "application/octet-stream"
LOOKUP = "/v1/models/m:lookup?table=user"


@pytest.fixture
def app():
    return create_app(load_settings(model_dir="x"), NumpyEngine())


def post(app, path, body, kind, accept=""):
    headers = {"content-type": kind, **({"accept": accept} if accept else {})}
    return ask(app, "POST", path, body, headers=headers)


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


def test_the_answer_alone_may_be_bytes_and_the_request_too(app):
    body = json.dumps({"table": "user", "ids": [7]}).encode()
    reply = ask(app, "POST", "/v1/models/m:lookup", body, headers={"accept": f"text/x, {RAW}"})
    assert np.frombuffer(reply.body[:8], "<f4").tolist() == [1, 2]
    plain = post(app, LOOKUP, np.array([7], "<i8").tobytes(), RAW)
    assert plain.json() == {"embeddings": [[1.0, 2.0]], "found": [True]}


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        (LOOKUP, b"1234567", "ids of 8 bytes each"),
        ("/v1/models/m:lookup?table=item", b"", "bytes by the Open Inference Protocol"),
        (f"{LOOKUP}&combiner=max", b"", "combiner must be one of none, sum, mean, sqrtn"),
        (f"{LOOKUP}&combiner=sum", bytes(8), "needs `ids` to be a list of lists"),
        ("/v1/models/m:predict", b"", "is for :lookup. For bytes to and from other signatures"),
    ],
)
def test_invalid_input_is_named_in_the_error(app, path, body, error):
    reply = post(app, path, body, RAW)
    assert reply.status == 400
    assert error in reply.error
