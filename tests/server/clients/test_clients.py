"""Common clients against a running gateway.

They run in their own environment, because their packages conflict with ours.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.server.support.asgi import make_app
from tests.server.support.gateway_process import ROOT, GatewayProcess, run

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def clients_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the packages of `requirements.txt`."""
    folder = tmp_path_factory.mktemp("clients") / "environment"
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        run(uv, "pip", "install", "--quiet", "--python", python, "-r", HERE / "requirements.txt")
    else:
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", "-r", HERE / "requirements.txt")
    return python


def test_triton_by_http(gateway):
    assert run(sys.executable, HERE / "ask_triton.py", str(gateway.port)) == "asked\n"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["ask_triton.py", "ask_kserve.py"])
def test_triton_and_kserve(gateway, clients_python, script):
    ports = (str(gateway.port), str(gateway.grpc_port))
    assert run(clients_python, HERE / script, *ports) == "asked\n"
    assert "Traceback" not in gateway.log()


@pytest.mark.slow
def test_a_client_generated_from_the_document(gateway, clients_python, tmp_path, monkeypatch):
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(make_app().openapi()))
    # The generator runs `ruff` from PATH to format its output; use the ruff of its environment.
    monkeypatch.setenv("PATH", f"{clients_python.parent}{os.pathsep}{os.environ['PATH']}")
    run(
        clients_python.parent / "openapi-python-client", "generate",
        "--path", document, "--output-path", tmp_path / "generated",
        "--meta", "none", "--fail-on-warning",
    )  # fmt: skip
    script = HERE / "ask_openapi.py"
    assert run(clients_python, script, str(gateway.port), tmp_path) == "asked\n"


@pytest.mark.slow
def test_tensorflow_serving_by_grpc(saved_models, tmp_path):
    shutil.copytree(saved_models / "3", tmp_path / "ranker" / "3")
    with GatewayProcess(tmp_path / "ranker", tmp_path / "log", "--grpc-port", "0") as gateway:
        gateway.wait_ready()
        script = HERE / "ask_tensorflow_serving.py"
        assert run(sys.executable, script, str(gateway.port_of("gRPC"))) == "asked\n"
        # REST answers `:classify` and `:regress` too, although the method names say predict.
        told = gateway.ask("GET", "/v1/models/ranker/metadata").json()["metadata"]["signature_def"]
        for verb, name, results in (
            ("classify", "old_or_young", [[["young", 0.75], ["old", 0.25]]]),
            ("regress", "half_the_age", [12.5]),
        ):
            method = told["signature_def"][name]["method_name"]
            assert method == "tensorflow/serving/predict"
            asked = {"signature_name": name, "examples": [{"age": 25.0}]}
            reply = gateway.ask("POST", f"/v1/models/ranker:{verb}", asked)
            assert (reply.status, reply.json()) == (200, {"results": results})


COMPARE = """
import sys
from google.protobuf import descriptor_pb2, descriptor_pool
from tritonclient.grpc import service_pb2
ours, theirs = descriptor_pool.DescriptorPool(), descriptor_pool.Default()
content = open(sys.argv[1], "rb").read()
(file,) = descriptor_pb2.FileDescriptorSet.FromString(content).file
ours.Add(file)

def check(message):
    other = theirs.FindMessageTypeByName(message.full_name)
    for field in message.fields:
        same = other.fields_by_name[field.name]
        assert (field.number, field.type) == (same.number, same.type), field.full_name
        assert field.is_repeated == same.is_repeated, field.full_name
    for nested in message.nested_types:
        check(nested)

for message in file.message_type:
    check(ours.FindMessageTypeByName("inference." + message.name))
service = ours.FindServiceByName("inference.GRPCInferenceService")
other = theirs.FindServiceByName(service.full_name)
for method in service.methods:
    same = other.methods_by_name[method.name]
    assert method.input_type.full_name == same.input_type.full_name
    assert method.output_type.full_name == same.output_type.full_name
"""


@pytest.mark.slow
def test_the_messages_are_those_of_their_source_and_of_triton(clients_python, tmp_path):
    committed, compiled = ROOT / "server/protos/open_inference.binpb", tmp_path / "compiled"
    protoc = [clients_python, "-m", "grpc_tools.protoc", "-I.", "--include_imports"]
    run(*protoc, f"--descriptor_set_out={compiled}", "server/protos/open_inference.proto")
    assert committed.read_bytes() == compiled.read_bytes()
    run(clients_python, "-c", COMPARE, committed)
