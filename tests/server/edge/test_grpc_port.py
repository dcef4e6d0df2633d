"""The embedded engine over TensorFlow Serving's gRPC services, called with its own stubs.

Tests versions, labels, warm-up, the admin port and TLS too, with real gateway processes.
"""

import json
import shutil
import ssl
import struct
from pathlib import Path

import grpc
import numpy as np
import pytest

from server.protos.modules import MODEL_SERVICE, PREDICTION_SERVICE
from server.protos.tensors import to_array
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import GatewayProcess, tls_files, write_key
from tests.server.support.grpc_port import (
    PROTOS,
    multi_inference,
    named,
    predict_request,
    stub,
    with_example,
)

MODEL = "/v1/models/ranker"
ROW = {"instances": [{"user": 7, "item": "x"}]}


def write_warm_up(folder: Path, *requests: object) -> None:
    """Writes a TFRecord file of PredictionLog messages, with invalid checksums."""
    file = folder / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir()
    logs = [PROTOS.PredictionLog(predict_log={"request": each}) for each in requests]
    records = [log.SerializeToString() for log in logs]
    file.write_bytes(
        b"".join(struct.pack("<Q4x", len(r)) + r + bytes(4) for r in records) + b"damaged"
    )


class Secured:
    """Two versions served with TLS, keys, labels, an admin port and gRPC."""

    def __init__(self, gateway: GatewayProcess, certificate: Path, key: str) -> None:
        self.gateway = gateway
        self.headers = {"authorization": f"Bearer {key}"}
        gateway.tls = ssl.create_default_context(cafile=str(certificate))
        self.admin_port = gateway.port_of("Admin API")
        self.grpc_port = gateway.port_of("gRPC")
        self.metadata = (("authorization", f"Bearer {key}"),)
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        self.channel = grpc.secure_channel(f"127.0.0.1:{self.grpc_port}", credentials)
        self.predictions = stub(PREDICTION_SERVICE, self.channel)
        self.models = stub(MODEL_SERVICE, self.channel)

    def ask(self, method, path, body=None):
        return self.gateway.ask(method, path, body, self.headers)

    def admin(self, method, path, body=None):
        return self.gateway.ask(method, path, body, self.headers, port=self.admin_port)


@pytest.fixture(scope="module")
def secured(saved_models: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("secured")
    for version in (1, 2):
        target = folder / "ranker" / str(version)
        shutil.copytree(saved_models / str(version), target, copy_function=shutil.copy)  # new files
    write_warm_up(folder / "ranker" / "1", *map(mix, range(3)))
    certificate, key_file = tls_files(folder)
    key, keys = write_key(folder, "predict", "lookup", "admin")
    settings = folder / "gateway.yaml"
    settings.write_text(
        json.dumps({"version_policy": "all", "labels": "stable=1", "poll_seconds": 0.1})
    )
    arguments = ("--settings-file", settings, "--tls-cert", certificate, "--tls-key", key_file,
                 "--keys-file", keys, "--admin-port", "0", "--grpc-port", "0",
                 "--batch-rows", "64")  # fmt: skip
    log = folder / "log"
    with GatewayProcess(folder / "ranker", log, *map(str, arguments)) as gateway:
        served = Secured(gateway, certificate, key)
        for version in (1, 2):
            path = f"{MODEL}/versions/{version}/metadata"
            wait_until(lambda path=path: served.ask("GET", path).status == 200)
        yield served
        served.channel.close()


def mix(value=1.0, **choice):
    request = predict_request("ranker", "mix", x=np.array([[value, 0.0]], np.float32))
    request.model_spec.MergeFrom(type(request.model_spec)(**choice))
    return request


def both_tasks():
    return multi_inference("ranker", old_or_young="classify", half_the_age="regress")


def test_predict_over_grpc(secured):
    answer = secured.predictions.Predict(mix(), metadata=secured.metadata)
    assert to_array(answer.outputs["y"]).tolist() == [[1.0, 10.0]]
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("ranker", 2)
    for choice in ({"version": {"value": 1}}, {"version_label": "stable"}):
        answer = secured.predictions.Predict(mix(**choice), metadata=secured.metadata)
        assert answer.model_spec.version.value == 1


def test_status_metadata_and_examples_over_grpc(secured):
    request = named(PROTOS.GetModelStatusRequest(), "ranker")
    status = secured.models.GetModelStatus(request, metadata=secured.metadata)
    assert [(s.version, s.state) for s in status.model_version_status] == [(2, 30), (1, 30)]
    request = named(PROTOS.GetModelMetadataRequest(), "ranker")
    request.metadata_field.append("signature_def")
    answer = secured.predictions.GetModelMetadata(request, metadata=secured.metadata)
    definitions = PROTOS.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(definitions)
    assert definitions.signature_def["mix"].inputs["x"].tensor_shape.dim[1].size == 2
    assert answer.model_spec.version.value == 2
    request.model_spec.version.value = 1
    answer = secured.predictions.GetModelMetadata(request, metadata=secured.metadata)
    assert answer.model_spec.version.value == 1
    multi = both_tasks()
    both = secured.predictions.MultiInference(multi, metadata=secured.metadata).results
    classes = both[0].classification_result.classifications[0].classes
    assert [(c.label, c.score) for c in classes] == [("young", 0.75), ("old", 0.25)]
    assert both[1].regression_result.regressions[0].value == 12.5
    alone = named(with_example(PROTOS.RegressionRequest()), "ranker", "half_the_age")
    answer = secured.predictions.Regress(alone, metadata=secured.metadata)
    assert answer.result.regressions[0].value == 12.5
    multi.tasks.add().CopyFrom(multi.tasks[0])
    with pytest.raises(grpc.RpcError) as caught:
        secured.predictions.MultiInference(multi, metadata=secured.metadata)
    assert caught.value.details() == "Duplicate evaluation of signature: old_or_young"


def test_labels_and_traffic_move_while_it_serves(secured):
    def version(path=MODEL):
        reply = secured.ask("POST", f"{path}:predict", ROW)
        assert reply.status == 200, reply
        assert reply.json()["predictions"][0]["version"] == int(reply.headers["x-model-version"])
        return reply.headers["x-model-version"]

    def versions_of_tasks():
        answer = secured.predictions.MultiInference(both_tasks(), metadata=secured.metadata)
        return tuple(each.model_spec.version.value for each in answer.results)

    assert (version(), version(f"{MODEL}/labels/stable")) == ("2", "1")
    path = "/admin/models/ranker"
    assert secured.admin("PUT", f"{path}/labels/canary", {"version": 2}).status == 200
    assert version(f"{MODEL}/labels/canary") == "2"
    assert secured.admin("PUT", f"{path}/traffic", {"weights": {"1": 1, "2": 1}}).status == 200
    assert {version() for _ in range(40)} == {"1", "2"}
    assert {versions_of_tasks() for _ in range(20)} == {(1, 1), (2, 2)}
    assert secured.admin("PUT", f"{path}/traffic", {"weights": {}}).status == 200
    assert {version() for _ in range(5)} == {"2"}


@pytest.mark.parametrize("has_key", [False, True])
def test_a_gateway_uses_tls_and_a_key_for_an_upstream_gateway(secured, tmp_path, has_key):
    certificate = Path(secured.gateway.log_path).parent / "cert.pem"
    token = tmp_path / "token"
    token.write_text(secured.headers["authorization"].removeprefix("Bearer ") + "\n")
    with GatewayProcess(
        None, tmp_path / "log", "--engine", "tfserving", "--models", "ranker",
        "--upstreams", f"localhost:{secured.grpc_port}", "--upstream-ca", str(certificate),
        *(["--upstream-token-file", str(token)] if has_key else []),
    ) as front:  # fmt: skip
        if has_key:
            front.wait_ready()
        else:
            # The upstream requires a key, so the gateway in front is never ready and answers 503.
            front.wait_for("/startupz", lambda reply: reply.status == 200)
        status = front.ask("POST", f"{MODEL}:predict", ROW).status
        assert status == (200 if has_key else 503)
        assert token.read_text().strip() not in front.log()


def test_versions_are_warm_before_they_serve(secured):
    log = secured.gateway.log()
    # Version 1 has a file of requests. For version 2 each signature runs on zeros.
    for version, count in ((1, 3), (2, 7)):
        warm = log.index(f"version {version} was warmed up by {count} requests")
        assert warm < log.index(f"model ranker version {version} serves")


def test_versions_ages_and_tables_are_metrics(secured):
    told = secured.ask("GET", "/metrics").body.decode()
    assert 'gateway_model_version{model="ranker"} 2.0' in told
    assert 'gateway_table_rows{model="ranker",table="user"} 4.0' in told
    age = 'gateway_model_version_age_seconds{model="ranker"}'
    assert 0 < secured.gateway.metric(age) < 3600
