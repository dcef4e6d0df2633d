"""The smoke test against canned answers: types of rows and ids, and names of models."""

import argparse
import importlib.util

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.tools import SERVING_OPS

TABLE = "de_lookup/t"
STATUS = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}
METADATA = {"metadata": {"signature_def": {"signature_def": {TABLE: {}}}}}
NAN = float("nan")


@pytest.fixture
def smoke():
    spec = importlib.util.spec_from_file_location("smoke_test", SERVING_OPS / "smoke_test.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(*rows):
    return np.array(rows, object)


@pytest.mark.parametrize(
    ("exported", "rest", "grpc", "wrong"),
    [
        (np.float32([[1, 2]]), [[1.0, 2.0]], np.float32([[1, 2]]), None),
        (np.float32([[1, 2]]), [[1.0, NAN]], np.float32([[1, 2]]), "REST"),
        (np.float32([[1, 2]]), [[1.0, 2.0]], np.float32([[1, NAN]]), "gRPC"),
        (np.float32([[1, 2]]), [1.0, 2.0], np.float32([[1, 2]]), "REST"),
        (np.array([[True]]), [[True]], np.array([[True]]), None),
        (np.array([[True]]), [[True]], np.array([[False]]), "gRPC"),
        (texts([b"a", b"\xff"]), [["a", {"b64": "/w=="}]], texts([b"a", b"\xff"]), None),
        (texts([b"a", b"b"]), [["a", "c"]], texts([b"a", b"b"]), "REST"),
    ],
)
@pytest.mark.parametrize(
    ("dtype", "sent"), [(tf.int64, [7, 2**40]), (tf.int32, [7]), (tf.string, ["7", str(2**40)])]
)
def test_rows_of_every_type_are_compared(
    smoke, monkeypatch, exported, rest, grpc, wrong, dtype, sent
):
    def over_rest(_, path, body=None):
        assert path.startswith("/v1/models/my%20model")
        if body is None:
            return METADATA if path.endswith("/metadata") else STATUS
        assert body == {"signature_name": TABLE, "inputs": {"ids": sent}}
        return {"outputs": {"embeddings": rest}}

    def over_grpc(_, model, signature, ids, _timeout):
        assert (model, signature) == ("my model", TABLE)
        assert tf.make_tensor_proto(ids).dtype == dtype
        return grpc

    monkeypatch.setattr(smoke, "over_rest", over_rest)
    monkeypatch.setattr(smoke, "over_grpc", over_grpc)
    monkeypatch.setattr(smoke, "exported_lookups", lambda _: {TABLE: (dtype, lambda _: exported)})
    args = argparse.Namespace(
        model="my model", export="", rest_port=1, grpc_port=1, wait=1, ids=[7, 2**40]
    )
    if wrong is None:
        assert smoke.compare("host", args) == 2
    else:
        with pytest.raises(smoke.SmokeTestError, match=f"{wrong} must answer the export's rows"):
            smoke.compare("host", args)
