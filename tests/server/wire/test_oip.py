"""Tests how requests and answers of the Open Inference Protocol are read and written."""

from __future__ import annotations

import json

import pytest

from server.app import create_app
from server.settings import load_settings
from tests.server.support.asgi import ask
from tests.server.support.numpy_engine import NumpyEngine


def make_app(**engine):
    return create_app(load_settings(model_dir="x"), NumpyEngine(**engine))


@pytest.fixture
def app():
    return make_app()


def infer(app, value, path="/v2/models/m/infer"):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return ask(app, "POST", path, body)


def tensor(name="x", datatype="FP32", shape=(2,), data=(1, 2)):
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def test_infer_with_flat_and_nested_data(app):
    reply = infer(app, {"id": "7", "inputs": [tensor()]})
    assert reply.json() == {
        "model_name": "m", "model_version": "3", "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.0]}],
    }  # fmt: skip
    nested = infer(app, {"inputs": [tensor(shape=(1, 2), data=[[1, 2]])]})
    assert nested.json()["outputs"][0]["shape"] == [1, 2]
    assert infer(app, {"inputs": [tensor()]}, "/v2/models/m/versions/3/infer").status == 200


def test_bytes_parameters_and_chosen_outputs(app):
    value = {
        "parameters": {"signature_name": "both", "other": 1},
        "inputs": [tensor("a", "INT64", (1,), [2**53 + 1]), tensor("s", "BYTES", (1,), ["é"])],
        "outputs": [{"name": "a"}],
    }
    assert infer(app, value).json()["outputs"] == [
        {"name": "a", "datatype": "INT64", "shape": [1], "data": [2**53 + 1]}
    ]


def test_infinities_are_taken_as_predict_takes_them(app):
    body = json.dumps({"inputs": [tensor(data=[1, 2])]}).replace("[1, 2]", "[NaN, -Infinity]")
    assert b'"data":[NaN,-Infinity]' in infer(app, body.encode()).body


def test_health_metadata_and_readiness(app):
    assert ask(app, "GET", "/v2").json()["name"] == "embedding-gateway"
    assert ask(app, "GET", "/v2/health/live").json() == {"live": True}
    assert ask(make_app(), "GET", "/v2/health/ready").json() == {"ready": True}
    assert ask(app, "GET", "/v2/models/m/ready").json() == {"name": "m", "ready": True}
    described = ask(app, "GET", "/v2/models/m").json()
    assert described["versions"] == ["3"]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert ask(app, "GET", "/v2/models/no/ready").status == 404
    assert ask(make_app(is_ready=False), "GET", "/v2/health/ready").status == 503


@pytest.mark.parametrize(
    ("value", "status", "error"),
    [
        (b"{", 400, "JSON Parse error"),
        (b"[1]", 400, "Is not object"),
        ({}, 400, "must be an object with `inputs`"),
        ({"inputs": [{"name": "x"}]}, 400, "must be an object with `inputs`"),
        ({"inputs": [tensor("y")]}, 400, "inputs must be x, each once. Received: y"),
        ({"inputs": [tensor(), tensor()]}, 400, "Received twice: x"),
        ({"inputs": [tensor(datatype="INT64")]}, 400, "must have datatype FP32"),
        ({"inputs": [tensor(shape=(3,))]}, 400, "must have 3 values for its shape"),
        ({"inputs": [tensor(shape=(-2,))]}, 400, "Received: shape=[-2]"),
        ({"inputs": [tensor(shape=(2**40, 2**40))]}, 400, "values. Received: shape="),
        ({"inputs": [tensor(shape=(0, 2**62), data=[])]}, 400, "Received: shape=[0, 46116"),
        ({"inputs": [tensor(shape=[1] * 9)]}, 400, "at most 8 dimensions"),
        ({"inputs": [tensor(data=[1, "a"])]}, 400, "Input x: JSON Value"),
        ({"inputs": [tensor()], "outputs": [{"name": "z"}]}, 400, "outputs must be of y"),
        ({"inputs": [tensor()], "parameters": {"signature_name": "no"}}, 400, "not found in sig"),
        (b'{"inputs": ' + b"[" * 500_000, 400, ""),
    ],
)
def test_invalid_input_is_named_in_the_error(app, value, status, error):
    reply = infer(app, value)
    assert reply.status == status
    assert error in reply.error


@pytest.mark.parametrize("path", ["/v2/models", "/v2/models/m/no", "/v2/x", "/v2x"])
def test_other_paths_are_not_found(app, path):
    assert ask(app, "GET", path).status == 404
    assert ask(app, "POST", "/v2/models/m/ready").status == 405
