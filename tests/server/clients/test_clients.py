"""Common clients against a running gateway.

They run in their own environment, because their packages conflict with ours.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.server.support.asgi import make_app
from tests.server.support.gateway_process import ROOT, GatewayProcess, run
from tests.server.support.grpc_port import on_the_wire

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


THEIRS = """
from tritonclient.grpc import service_pb2
for file in (service_pb2.DESCRIPTOR, *service_pb2.DESCRIPTOR.dependencies):
    print(file.serialized_pb.hex())
"""


@pytest.mark.slow
def test_the_messages_are_those_of_their_source_and_of_triton(clients_python, tmp_path):
    committed, compiled = ROOT / "server/protos/open_inference.binpb", tmp_path / "compiled"
    protoc = [clients_python, "-m", "grpc_tools.protoc", "-I.", "--include_imports"]
    run(*protoc, f"--descriptor_set_out={compiled}", "server/protos/open_inference.proto")
    assert committed.read_bytes() == compiled.read_bytes()
    files = FileDescriptorSet()
    for text in run(clients_python, "-c", THEIRS).split():
        files.file.add().ParseFromString(bytes.fromhex(text))
    ours = on_the_wire(FileDescriptorSet.FromString(committed.read_bytes()))
    assert ours
    assert ours.items() <= on_the_wire(files).items()
