"""The images are built and do their work: one trains and exports, one serves and looks up."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import build_images
import pytest

from tests.serving.tools import ROOT, needs, run

pytestmark = [
    pytest.mark.slow,
    needs("buildah", "debootstrap"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a chroot"),
]
WORK = ROOT / "build" / "images"  # kept: the second run takes its layers from there
ISOLATED = ["--isolation", "chroot", "--network", "host"]


@pytest.fixture(scope="module")
def builder():
    WORK.mkdir(parents=True, exist_ok=True)
    builder = build_images.Buildah(WORK / "storage")
    builder.make_base(WORK)
    for target in ("trainer", "gateway"):
        builder.build(target)
    return builder


@contextmanager
def container(builder, target):
    name = run([*builder.command, "from", "--pull-never", f"localhost/de-core/{target}"]).strip()
    try:
        yield name
    finally:
        run([*builder.command, "rm", name])


def settings(builder, target):
    """Returns what the image says of how it runs."""
    said = json.loads(run([*builder.command, "inspect", f"localhost/de-core/{target}"]))
    return said["Docker"]["config"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=30) as response:
        return json.load(response)


def test_images_run_as_a_user_and_say_how_they_are(builder):
    for target in ("trainer", "gateway"):
        assert settings(builder, target)["User"] == "app"
    gateway = settings(builder, "gateway")
    assert "readyz" in " ".join(gateway["Healthcheck"]["Test"])
    assert "8501/tcp" in gateway["ExposedPorts"]


def test_what_the_trainer_exports_the_gateway_serves(builder, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    models.chmod(0o777)
    volume = ["--volume", f"{models}:/models"]
    with container(builder, "trainer") as name:
        command = settings(builder, "trainer")["Cmd"]
        run([*builder.command, "run", *ISOLATED, *volume, name, "--", *command], timeout=900)
    assert (models / "ranking" / "1" / "saved_model.pb").is_file()

    port = free_port()
    with container(builder, "gateway") as name:
        config = settings(builder, "gateway")
        command = [*config["Entrypoint"], *config["Cmd"], "--port", str(port)]
        process = subprocess.Popen(
            [*map(str, builder.command), "run", *ISOLATED, *volume, name, "--", *command]
        )
        try:
            deadline = time.monotonic() + 180
            while True:
                try:
                    states = ask(port, "/v1/models/ranking")
                    break
                except OSError:
                    assert process.poll() is None, "the gateway ended"
                    assert time.monotonic() < deadline, "the gateway did not listen"
                    time.sleep(0.5)
            assert states["model_version_status"][0]["state"] == "AVAILABLE"
            instances = [{"user_id": "u17", "item_id": "i3"}]
            scores = ask(port, "/v1/models/ranking:predict", {"instances": instances})
            assert len(scores["predictions"]) == 1
            lookup = {"table": "users", "ids": ["u17", "nobody"]}
            found = ask(port, "/v1/models/ranking:lookup", lookup)["found"]
            assert found == [True, False]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
