"""The committed descriptors match TensorFlow Serving's, and need only protobuf and gRPC."""

import importlib.metadata
import sys

import pytest
import serving_protos
from google.protobuf import descriptor_pb2

from server.protos.modules import DESCRIPTORS
from tests.server.support.gateway_process import run
from tests.server.support.grpc_port import on_the_wire
from tests.support.applies import applies_if

GENERATED_FROM = "2.21"

RELEASE = importlib.metadata.version("tensorflow-serving-api")


@pytest.fixture(scope="module")
def committed():
    return descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())


@pytest.fixture(scope="module")
def installed():
    return serving_protos.collect()


def test_the_descriptors_are_those_of_the_installed_package(committed, installed):
    mine, theirs = on_the_wire(committed), on_the_wire(installed)
    shared = mine.keys() & theirs.keys()
    assert {key: mine[key] for key in shared} == {key: theirs[key] for key in shared}
    of_serving = {key for key in theirs if key[0].startswith("tensorflow.serving")}
    assert of_serving
    assert of_serving <= mine.keys(), "run scripts/serving_protos.py"


@applies_if(RELEASE.startswith(GENERATED_FROM), f"tensorflow-serving-api {GENERATED_FROM}")
def test_the_script_writes_the_committed_file(committed, installed):
    # protobuf's own files come from the installed protobuf.
    ours = {f.name: f for f in committed.file if not f.name.startswith("google/")}
    assert ours == {f.name: f for f in installed.file if not f.name.startswith("google/")}


def test_messages_cross_over_to_the_generated_classes():
    program = """
import sys
sys.modules["tensorflow"] = sys.modules["tensorflow_serving"] = None  # cannot be imported
from server.protos.modules import load_protos
protos = load_protos()
request = protos.predict.PredictRequest()
request.model_spec.version.value = 3
request.inputs["x"].float_val.append(0.5)
answer = protos.metadata.GetModelMetadataResponse()
answer.metadata["signature_def"].Pack(protos.metadata.SignatureDefMap())
print(request.SerializeToString().hex())
"""
    said = bytes.fromhex(run(sys.executable, "-c", program))
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest.FromString(said)
    assert request.model_spec.version.value == 3
    assert list(request.inputs["x"].float_val) == [0.5]
