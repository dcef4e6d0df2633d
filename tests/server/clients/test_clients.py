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
from tests.server.support.gateway_process import ROOT, run

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
