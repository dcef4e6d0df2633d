"""The committed descriptors match TensorFlow Serving's."""

import importlib.metadata

import pytest
import serving_protos
from google.protobuf import descriptor_pb2

from server.protos.modules import DESCRIPTORS
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
