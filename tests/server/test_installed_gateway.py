"""The gateway as users install it: its wheel, and every route and command without the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from server import admin
from tests.server.support.asgi import make_app
from tests.server.support.eventually import PATIENCE_S, wait_until
from tests.server.support.gateway_process import (
    INSTALLED,
    NAME,
    ROOT,
    GatewayProcess,
    installed,
    run,
    write_key,
)
from tests.server.support.light_upstream import LightUpstream

ROW = {"user": 7, "item": "x"}
LOOKUP = {"table": "user", "ids": [7]}
#: What each operation is asked, by the end of its path.
BODIES: dict[str, Any] = {
    ":predict": {"instances": [ROW]},
    ":classify": {"signature_name": "old_or_young", "examples": [{"age": 25.0}]},
    ":regress": {"signature_name": "half_the_age", "examples": [{"age": 25.0}]},
    ":lookup": LOOKUP,
    "/infer": {
        "inputs": [
            {"name": "user", "datatype": "INT64", "shape": [1], "data": [7]},
            {"name": "item", "datatype": "BYTES", "shape": [1], "data": ["x"]},
        ]
    },
    "/index": {},
}
NAMES = {"model": "ranker", "version": "1", "label": "stable", "table": "user"}
OPERATIONS = [
    (path, method)
    for path, methods in make_app(ui="true").openapi()["paths"].items()
    for method in methods
]


def test_the_wheel_holds_every_file_under_its_own_name(site: Path) -> None:
    """Fails if the list of packages in `server/pyproject.toml` lacks a folder."""
    sources = {
        path.relative_to(ROOT / "server")
        for pattern in ("*.py", "*.html", "*.binpb", "*.proto", "py.typed")
        for path in (ROOT / "server").rglob(pattern)
    }
    package, (described,) = site / NAME, site.glob("*.dist-info")
    files = {p.relative_to(package) for p in package.rglob("*") if p.is_file()}
    assert {p for p in files if p.suffix != ".pyc"} == sources
    ours = {"empty", "sitecustomize.py", "__pycache__"}
    assert {p.name for p in site.iterdir()} - ours == {NAME, "bin", described.name}
    assert "\nProvides-Extra: tensorflow\n" in (described / "METADATA").read_text()
    assert "de-core-gateway = de_core_gateway." in (described / "entry_points.txt").read_text()
    assert "Apache License" in (described / "licenses/LICENSE").read_text()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_documented_route_answers(gateway: GatewayProcess, path: str, method: str) -> None:
    ends = [end for end in BODIES if path.endswith(end)]
    for name, value in NAMES.items():
        path = path.replace(f"{{{name}}}", value)
    reply = gateway.ask(method.upper(), path, BODIES[ends[0]] if ends else None)
    assert reply.status == 200, (path, reply, gateway.log())


def test_a_large_body_is_read_by_another_process(gateway: GatewayProcess) -> None:
    body = {"instances": [ROW] * 25_000}
    assert len(json.dumps(body)) > 600_000
    reply = gateway.ask("POST", "/v1/models/ranker:predict", body)
    assert len(reply.json()["predictions"]) == 25_000


def test_every_grpc_service_is_offered(gateway: GatewayProcess) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        assert set(ProtoReflectionDescriptorDatabase(channel).get_services()) == {
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "inference.GRPCInferenceService",
            "tensorflow.serving.ModelService",
            "tensorflow.serving.PredictionService",
        }


@pytest.fixture(scope="module")
def without_tensorflow():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DE_TEST_ABSENT", "tensorflow tensorflow_serving keras de_core")
        yield


ADMIN: list[tuple[str, str, Any]] = [
    ("GET", "/admin/models", None),
    ("GET", "/admin/routes", None),
    ("PUT", "/admin/models/m/labels/stable", {"version": 3}),
    ("DELETE", "/admin/models/m/labels/stable", None),
    ("PUT", "/admin/models/m/traffic", {"weights": {"3": 1}}),
    ("POST", "/admin/models/m:reload", None),
    ("POST", "/admin/upstreams/u0:drain", None),
    ("POST", "/admin/upstreams/u0:enable", None),
    ("POST", "/admin/gateway:drain", None),
    ("POST", "/admin/gateway:enable", None),
]


@pytest.mark.usefixtures("without_tensorflow")
def test_every_admin_route_answers_in_front_of_a_model_server(site: Path, tmp_path: Path) -> None:
    for route in admin.router.routes:
        assert any(m in route.methods and route.path_regex.match(p) for m, p, _ in ADMIN), route
    key, keys = write_key(tmp_path, "predict", "admin")
    headers = {"x-api-key": key}
    with LightUpstream() as upstream, GatewayProcess(
        None, tmp_path / "log", "--engine", "tfserving", "--models", "m", "--admin-port", "0",
        "--upstreams", f"u0=127.0.0.1:{upstream.port}", "--keys-file", str(keys),
        "--grpc-port", "0", program=INSTALLED, **installed(site),
    ) as gateway:  # fmt: skip
        port = gateway.port_of("Admin API")
        assert gateway.port_of("gRPC")
        gateway.wait_ready()
        told = {"signature_name": "told", "instances": [1.0]}
        answer = gateway.ask("POST", "/v1/models/m:predict", told, headers)
        assert answer.json() == {"predictions": [3]}, gateway.log()
        for method, path, body in ADMIN:
            reply = gateway.ask(method, path, body, headers, port=port)
            assert reply.status == 200, (path, reply, gateway.log())
        health = [sys.executable, "-m", f"{NAME}.process.health"]
        around = installed(site)
        around["env"]["DE_GATEWAY_PORT"] = str(gateway.port)

        def healthy() -> bool:
            return subprocess.run(health, check=False, **around).returncode == 0

        wait_until(healthy)  # it waits for an answer only briefly
        gateway.process.terminate()
        assert gateway.process.wait(PATIENCE_S) == 0


@pytest.mark.usefixtures("without_tensorflow")
def test_workers_start_under_the_installed_name(site: Path, tmp_path: Path) -> None:
    flags = "--engine tfserving --upstreams 127.0.0.1:1 --models m --workers 2 --drain-seconds 0"
    log, around = tmp_path / "log", installed(site)
    with GatewayProcess(None, log, *flags.split(), program=INSTALLED, **around) as gateway:
        reply = gateway.ask("GET", "/v1/models/m/versions/1")
        assert reply.status == 503, reply
        assert "No model server" in reply.error
        gateway.process.terminate()
        assert gateway.process.wait(PATIENCE_S) == 0


MODULES = f"""
import importlib, pkgutil, {NAME} as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(package.__file__)
"""


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["bin/de-core-gateway", "--help"], f"python -m {NAME} --model-dir"),
        (["-m", NAME, "--help"], f"python -m {NAME} --model-dir"),
        (["-m", f"{NAME}.keys", "--help"], f"python -m {NAME}.keys"),
        (["-c", MODULES], f"/{NAME}/__init__.py"),
    ],
    ids=["script", "module", "keys", "every module"],
)
@pytest.mark.usefixtures("without_tensorflow")
def test_commands_name_the_installed_package(site: Path, command: list[str], told: str) -> None:
    first, *more = command
    program = str(site / first) if first.startswith("bin/") else first
    printed = run(sys.executable, program, *more, **installed(site))
    assert told in printed
    assert str(ROOT) + os.sep + "server" not in printed
