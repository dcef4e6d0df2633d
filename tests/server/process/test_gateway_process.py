"""Tests a real gateway process with real SavedModels."""

from __future__ import annotations

import gzip
import json
import socket

import pytest

MODEL = "/v1/models/ranker"


def predict(gateway, value, path=MODEL):
    return gateway.ask("POST", f"{path}:predict", value)


def test_predict_in_rows_and_columns(gateway):
    rows = [{"user": 7, "item": "lamp"}, {"user": 2**53 + 1, "item": {"b64": "/w=="}}]
    reply = predict(gateway, {"instances": rows})
    assert reply.status == 200
    assert reply.headers["x-model-version"] == "1"
    assert reply.json()["predictions"][0] == {"score": 7.5, "user": 7, "version": 1}
    assert reply.json()["predictions"][1]["user"] == 2**53 + 1
    columns = {"inputs": {"user": [7, 8], "item": ["lamp", ""]}}
    assert predict(gateway, columns).json() == {
        "outputs": {"score": [7.5, 4.0], "user": [7, 8], "version": [1, 1]}
    }
    assert predict(gateway, columns, f"{MODEL}/versions/1").status == 200


def test_an_empty_batch(gateway):
    # numpy makes a float array of an empty list. The gateway must use the declared type, string.
    reply = predict(gateway, {"inputs": {"user": [], "item": []}})
    assert reply.json() == {"outputs": {"score": [], "user": [], "version": []}}


def test_shapes_the_signature_does_not_declare_are_the_graphs_to_judge(gateway):
    lenient = {"signature_name": "half_plus_two", "instances": [1.0, 2.0, 5.0]}
    assert predict(gateway, lenient).json() == {"predictions": [2.5, 3.0, 4.5]}
    reply = predict(gateway, {"signature_name": "mix", "instances": [[1.0, 2.0, 3.0]]})
    assert reply.status == 400
    assert reply.error.startswith("Input x must have shape [-1,2]. Received: shape [1,3].")
    assert "{{node" not in reply.error


def test_infinities_travel_both_ways(gateway):
    body = b'{"signature_name": "half_plus_two", "instances": [[NaN], [1e39], [-Infinity]]}'
    reply = predict(gateway, body)
    assert reply.body == b'{"predictions":[[NaN],[Infinity],[-Infinity]]}'


def test_classify_and_regress(gateway):
    reply = gateway.ask(
        "POST",
        f"{MODEL}:classify",
        {"signature_name": "old_or_young", "examples": [{"age": 25.0}], "context": {"x": 1}},
    )
    assert reply.json() == {"results": [[["young", 0.75], ["old", 0.25]]]}
    reply = gateway.ask(
        "POST",
        f"{MODEL}:regress",
        {
            "signature_name": "half_the_age",
            "context": {"age": 10.0},
            "examples": [{"age": 30.0}, {}],
        },
    )
    assert reply.json() == {"results": [15.0, 5.0]}
    wrong = {"signature_name": "half_the_age", "examples": [{"age": "x"}]}
    assert gateway.ask("POST", f"{MODEL}:regress", wrong).status == 400


def test_lookup_of_both_kinds_of_keys(gateway):
    reply = gateway.ask("POST", f"{MODEL}:lookup", {"table": "user", "ids": [7, str(-(2**63)), 5]})
    assert reply.json() == {
        "embeddings": [[0.5, 1.5, 2.5, 3.5], [2.5, 3.5, 4.5, 5.5], [-1.0] * 4],
        "found": [True, True, False],
    }
    pooled = {
        "table": "item",
        "ids": [["lamp", {"b64": "/wA="}], ["?"]],
        "combiner": "mean",
        "missing": "null",
    }
    assert gateway.ask("POST", f"{MODEL}:lookup", pooled).json() == {
        "embeddings": [[1.5, 2.5, 3.5, 4.5], None],
        "found": [[True, True], [False]],
    }
    empty = gateway.ask("POST", f"{MODEL}:lookup", {"table": "item", "ids": []})
    assert empty.json() == {"embeddings": [], "found": []}
    missing = {"table": "item", "ids": ["?"], "missing": "error"}
    assert gateway.ask("POST", f"{MODEL}:lookup", missing).status == 404


def test_status_metadata_and_tables(gateway):
    status = gateway.ask("GET", MODEL).json()["model_version_status"]
    assert [(entry["version"], entry["state"]) for entry in status] == [("1", "AVAILABLE")]
    metadata = gateway.ask("GET", f"{MODEL}/metadata").json()
    definitions = metadata["metadata"]["signature_def"]["signature_def"]
    user = definitions["de_lookup/user"]
    assert user["inputs"]["ids"]["dtype"] == "DT_INT64"
    assert user["outputs"]["embeddings"]["tensor_shape"]["dim"] == [
        {"size": "-1", "name": ""},
        {"size": "4", "name": ""},
    ]
    assert definitions["old_or_young"]["method_name"] == "tensorflow/serving/classify"
    table = {"table": "user", "rows": 4, "dim": 4, "key_dtype": "int64"}
    assert gateway.ask("GET", f"{MODEL}/tables").json()["tables"][0] == table
    assert gateway.ask("GET", f"{MODEL}/versions/1/tables/user").json() == table


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/v1/models/x", 404, "Could not find any versions of model x"),
        (f"{MODEL}/versions/9", 404, "Could not find version 9 of model ranker"),
        (f"{MODEL}/labels/l", 400, "Unrecognized servable version label: l"),
        ("/v1/models/x/labels/l", 400, "Unrecognized servable version label: l"),
        ("/v1/models/x/metadata", 404, "Servable not found for request: Latest(x)"),
        ("/v1/models", 400, "Missing model name in request."),
        ("/v1/models/ranker/", 400, "Malformed request: GET /v1/models/ranker/"),
        ("/v1/models/%72anker/x%2Fy", 400, "Malformed request: GET /v1/models/%72anker/x%2Fy"),
    ],
)
def test_refusals_keep_the_path_as_it_was_sent(gateway, path, status, error):
    reply = gateway.ask("GET", path)
    assert (reply.status, reply.json()) == (status, {"error": error})


def test_percent_encoded_names_are_decoded(gateway):
    assert gateway.ask("GET", "/v1/models/%72anker").status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b'{"instances": [1e400]}', b'{"x": ' + b"[" * 500_000, b'["instances"]'],
)
def test_malformed_json_is_a_400(gateway, body):
    reply = predict(gateway, body)
    assert reply.status == 400
    assert list(reply.json()) == ["error"]


@pytest.mark.parametrize("size", [1_000_001, 5_000_000])
def test_long_bodies_are_a_413_that_arrives(gateway, size):
    reply = predict(gateway, b" " * size)
    assert (reply.status, reply.error) == (413, "Request body exceeds 1000000 bytes")
    chunked = [b" " * 50_000] * (size // 50_000 + 1)
    assert predict(gateway, chunked).status == 413


def test_an_endless_run_ends_at_its_deadline(gateway):
    forever, short = ({"signature_name": "slow", "inputs": n} for n in (2_000_000_000, 1))
    headers = {"X-Request-Timeout-Ms": "300"}
    reply = gateway.ask("POST", f"{MODEL}:predict", forever, headers)
    assert (reply.status, reply.error) == (504, "Deadline exceeded")
    gateway.wait_in_flight(0)
    assert predict(gateway, short).json() == {"outputs": 1}


def test_gzip_requests(gateway):
    body = gzip.compress(b'{"instances": [{"user": 7, "item": "x"}]}')
    headers = {"content-encoding": "gzip"}
    assert gateway.ask("POST", f"{MODEL}:predict", body, headers).status == 200
    bomb = gzip.compress(bytes(200_000_000), 9)
    assert len(bomb) < 1_000_000
    assert gateway.ask("POST", f"{MODEL}:predict", bomb, headers).status == 413


def test_a_client_that_leaves_early_harms_nobody(gateway):
    for sent in (
        b"POST /v1/models/ranker:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"POST /v1/models/ranker:predict HTTP/1.1\r\n",
        b"\x00\xff\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.sendall(sent)
    assert gateway.ask("GET", "/readyz").status == 200


def test_one_connection_carries_many_requests(gateway):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    for n in range(20):
        body = json.dumps({"instances": [{"user": n, "item": ""}]})
        connection.request("POST", f"{MODEL}:predict", body)
        response = connection.getresponse()
        assert json.loads(response.read())["predictions"][0]["user"] == n
    connection.close()


def test_operations(gateway):
    assert gateway.ask("GET", "/livez").status == 200
    assert gateway.ask("GET", "/startupz").status == 200
    assert "tensorflow" in "".join(gateway.ask("GET", "/version").json())
    assert (
        f"{MODEL}:predict".replace("ranker", "{model}")
        in gateway.ask("GET", "/openapi.json").json()["paths"]
    )
    assert predict(gateway, {"inputs": {"user": [], "item": []}}).status == 200
    assert (
        b'gateway_requests_total{code="200",model="ranker",verb="predict"}'
        in gateway.ask("GET", "/metrics").body
    )
