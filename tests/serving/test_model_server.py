"""A model server with the ops, seen by clients: gRPC, REST, versions, corruption, batching.

Runs against the gateway, which offers the same two protocols, and against the binary in
DE_MODEL_SERVER if set. DE_MODEL_SERVER_PRELOAD names an op library that the binary must preload.
"""

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.support.asking import asking
from tests.server.support.eventually import PATIENCE_S, wait_until
from tests.serving import model_server as servers
from tests.serving.model_server import MODEL, ModelServer
from tests.serving.tools import SERVING_OPS
from tests.support import commands
from tests.support.applies import applies_if

pytestmark = pytest.mark.slow
LOOKUP = "de_lookup/users"
IDS = [0, 7, 4_000_000_000]

needs_binary = applies_if(servers.BINARY is not None, "a model server, named by DE_MODEL_SERVER")


@pytest.fixture(
    params=[
        pytest.param(servers.gateway_command, id="gateway"),
        pytest.param(servers.binary_command, id="binary", marks=needs_binary),
    ]
)
def command_of(request):
    return request.param


@pytest.fixture(scope="module")
def exported(export_versions, tmp_path_factory):
    return export_versions(tmp_path_factory.mktemp("exported"), 1, 2, 3)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path


def publish(exported, folder, version):
    """Copies a version into the folder atomically."""
    shutil.copytree(exported / str(version), folder / "copying")
    (folder / "copying").rename(folder / "root" / str(version))


def rows(version):
    return [[float(version)] * 4, [float(version)] * 4, [0.5] * 4]


def looked_up(server, version=None):
    path = f"/v1/models/{MODEL}" + (f"/versions/{version}" if version else "")
    body = {"signature_name": LOOKUP, "inputs": {"ids": IDS}}
    status, said = server.rest(f"{path}:predict", body)
    assert status == 200, said
    return said["outputs"]["embeddings"]


def predicted_over_grpc(server, version=None):
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = MODEL
    request.model_spec.signature_name = LOOKUP
    if version:
        request.model_spec.version.value = version
    request.inputs["ids"].CopyFrom(tf.make_tensor_proto(IDS, tf.int64))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request, timeout=PATIENCE_S)
    return tf.make_ndarray(answer.outputs["embeddings"]).tolist()


def test_the_smoke_test_passes_and_can_fail(command_of, exported, folder):
    publish(exported, folder, 1)
    with ModelServer(command_of, folder / "root", folder) as server:
        command = [sys.executable, SERVING_OPS / "smoke_test.py", "127.0.0.1", "--model", MODEL]
        command += ["--grpc-port", server.grpc_port, "--rest-port", server.rest_port]
        right, wrong = (
            commands.run(
                *command, "--export", exported / version, PYTHONPATH=str(SERVING_OPS.parent)
            )
            for version in ("1", "2")
        )
        assert right.returncode == 0, right.stderr
        assert "passed: 2 comparisons" in right.stdout, right.stderr
        assert wrong.returncode == 1
        assert "must answer the export's rows" in wrong.stderr


def test_a_swap_under_load_fails_no_request_and_rolls_back(command_of, exported, folder):
    publish(exported, folder, 1)
    with ModelServer(command_of, folder / "root", folder) as server:

        def ask():
            answer = looked_up(server)
            version = int(answer[0][0])
            assert answer == rows(version)  # never a mix of two versions
            return version

        with asking(ask, clients=4) as seen:
            for version in (2, 3):
                publish(exported, folder, version)
                server.wait_for("AVAILABLE", version)
            shutil.rmtree(folder / "root" / "3")  # back to the previous version
            wait_until(lambda: looked_up(server) == rows(2))
        assert set(seen) == {1, 2, 3}
        assert looked_up(server) == rows(2)


def test_two_versions_answer_at_once(command_of, exported, folder):
    publish(exported, folder, 1)
    publish(exported, folder, 2)
    with ModelServer(command_of, folder / "root", folder, every_version=True) as server:
        server.wait_for("AVAILABLE", 1)
        server.wait_for("AVAILABLE", 2)
        for version in (1, 2):
            assert looked_up(server, version) == rows(version)
            assert predicted_over_grpc(server, version) == rows(version)
        assert looked_up(server) == rows(2)


def test_a_corrupt_version_does_not_unseat_the_good_one(command_of, exported, folder):
    publish(exported, folder, 1)
    with ModelServer(command_of, folder / "root", folder) as server:
        shutil.copytree(exported / "2", folder / "damaged")
        for asset in (folder / "damaged" / "assets").iterdir():
            asset.write_bytes(asset.read_bytes()[:200])
        (folder / "damaged").rename(folder / "root" / "2")
        server.wait_for("END", 2, seconds=120)
        assert server.states()[1] == "AVAILABLE"
        assert looked_up(server) == rows(1)
        assert predicted_over_grpc(server) == rows(1)


@pytest.fixture(scope="module")
def published(export_versions, tmp_path_factory):
    return export_versions(tmp_path_factory.mktemp("published"), 1, 2, how="publish")


def test_a_delta_is_served_and_taken_back(command_of, published, folder):
    publish(published, folder, 1)
    with ModelServer(command_of, folder / "root", folder) as server:
        assert looked_up(server) == rows(1)
        publish(published, folder, 2)
        server.wait_for("AVAILABLE", 2)
        changed = [rows(2)[0], *rows(1)[1:]]
        wait_until(lambda: looked_up(server) == changed)
        assert predicted_over_grpc(server) == changed
        shutil.rmtree(folder / "root" / "2")
        wait_until(lambda: looked_up(server) == rows(1))


def test_a_version_is_warmed_up_by_the_requests_in_it(command_of, published, folder):
    publish(published, folder, 1)
    assert (folder / "root" / "1" / "assets.extra" / "tf_serving_warmup_requests").is_file()
    with ModelServer(command_of, folder / "root", folder) as server:
        said = server.log.read_text(errors="replace")
        assert looked_up(server) == rows(1)
    # The gateway's text and TensorFlow Serving's text.
    assert re.search(r"warmed up by 3 requests|warmup records read: 3", said), said[-4000:]


def test_batched_requests_each_get_their_own_rows(command_of, exported, folder):
    publish(exported, folder, 1)
    with ModelServer(command_of, folder / "root", folder, batching=True) as server:
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _: looked_up(server), range(400)))
        assert answers == [rows(1)] * 400
