"""The application also runs under other ASGI servers, with its models."""

import functools
import json
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.server.support.asgi import PREDICT, ask
from tests.server.support.eventually import PATIENCE_S, wait_until
from tests.server.support.gateway_process import ROOT, ask_port, environment

SCORE = {"score": 7.5, "user": 7, "version": 1}
FACTORY = "server.app:create_app_from_environment"
COMMANDS = {
    "uvicorn": lambda fd: ["uvicorn", "--factory", FACTORY, "--fd", str(fd)],
    "hypercorn": lambda fd: ["hypercorn", f"{FACTORY}()", "--bind", f"fd://{fd}"],
}


@contextmanager
def serving(server: str, log, **variables: str):
    """Runs the application under a server, on a port that is known before."""
    with socket.create_server(("127.0.0.1", 0)) as listener, log.open("wb") as file:
        listener.setblocking(False)
        process = subprocess.Popen(
            [sys.executable, "-m", *COMMANDS[server](listener.fileno())], cwd=ROOT, stderr=file,
            env={**environment(), **variables}, pass_fds=[listener.fileno()],
        )  # fmt: skip
        try:
            yield functools.partial(ask_port, listener.getsockname()[1])
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    assert process.returncode in (0, -15), log.read_text()
    assert "Traceback" not in log.read_text()


@pytest.mark.slow  # Each server loads TensorFlow.
@pytest.mark.parametrize("server", COMMANDS)
def test_another_server_runs_the_embedded_engine(saved_models, tmp_path, server):
    folder = tmp_path / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    variables = {
        "DE_GATEWAY_MODEL_DIR": str(folder),
        "DE_GATEWAY_LABELS": "stable=1",
        "DE_GATEWAY_MAX_BODY_BYTES": "1000",
    }
    with serving(server, tmp_path / "log", **variables) as asked:
        wait_until(lambda: asked("GET", "/readyz").status == 200)
        row = json.dumps({"instances": [{"user": 7, "item": "lamp"}]}).encode()
        reply = asked("POST", "/v1/models/ranker/labels/stable:predict", row)
        assert (reply.status, reply.json()) == (200, {"predictions": [SCORE]}), reply
        assert reply.headers["x-model-version"] == "1"
        pieces = asked("POST", "/v1/models/ranker:predict", [row[:9], row[9:]])
        assert pieces.body == reply.body
        assert asked("POST", "/v1/models/ranker:predict", [bytes(600)] * 2).status == 413
        unknown = asked("GET", "/v1/models/a%2Fb")
        told = "Could not find any versions of model a/b"
        assert (unknown.status, unknown.error) == (404, told)


def test_a_server_may_mount_the_application_under_a_prefix(app):
    def mounted(scope, receive, send):
        paths = {"path": f"/tf{scope['path']}", "raw_path": b"/tf" + scope["raw_path"]}
        return app({**scope, **paths, "root_path": "/tf"}, receive, send)

    mounted.router = app.router
    assert ask(mounted, *PREDICT).json() == {"predictions": [2.5]}
    assert ask(mounted, "GET", "/livez").status == 200


def test_a_server_need_not_give_the_undecoded_path(app):
    def without(scope, receive, send):
        return app({k: v for k, v in scope.items() if k != "raw_path"}, receive, send)

    without.router = app.router
    assert ask(without, "GET", "/v1/models/m").status == 200
