"""The images work: one trains and exports, one serves and looks up."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import build_images
import pytest
from versions import versions

from tests.server.support.gateway_process import some_port
from tests.serving.tools import ROOT, needs, run
from tests.support.applies import applies_if

pytestmark = [
    pytest.mark.slow,
    needs("buildah", "debootstrap", "ps"),
    applies_if(os.geteuid() == 0, "root, for a chroot"),
]
WORK = ROOT / "build" / "images"  # kept, so that the next run reuses the layers
ISOLATED = ["--isolation", "chroot", "--network", "host"]


@pytest.fixture(scope="module")
def builder():
    WORK.mkdir(parents=True, exist_ok=True)
    builder = build_images.Buildah(WORK / "storage")
    builder.make_base(WORK)
    for target in build_images.TARGETS:
        builder.build(target)
    return builder


@pytest.fixture(autouse=True)
def handled_sigint():
    """Lets containers handle SIGINT.

    They inherit ignored signals, and a shell without job control ignores SIGINT in the background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def settings(builder, target):
    """Returns the image's configuration."""
    said = json.loads(run([*builder.command, "inspect", f"localhost/de-core/{target}"]))
    return said["Docker"]["config"]


@contextmanager
def running(builder, target, command, *options):
    """Runs a command in a new container; returns buildah's process."""
    name = run([*builder.command, "from", "--pull-never", f"localhost/de-core/{target}"]).strip()
    full = [*builder.command, "run", *ISOLATED, *options, name, "--", *command]
    try:
        with subprocess.Popen(
            list(map(str, full)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                yield process
            finally:
                for pid in descendants(process.pid) if process.poll() is None else []:
                    os.kill(pid, signal.SIGKILL)
    finally:
        run([*builder.command, "rm", name])


def in_container(builder, target, command, *options, timeout=900):
    """Runs a command, which must succeed, and returns its output."""
    with running(builder, target, command, *options) as process:
        said, _ = process.communicate(timeout=timeout)
        assert process.returncode == 0, said[-4000:]
    return said


def descendants(pid):
    """Returns a process and its descendants, the innermost last."""
    children = subprocess.run(
        ["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False
    ).stdout.split()
    return [pid, *(each for child in children for each in descendants(int(child)))]


def stop(builder, target, process):
    """Sends the stop signal to the container's process; returns its exit status."""
    name = settings(builder, target).get("StopSignal", "SIGTERM")
    os.kill(descendants(process.pid)[-1], signal.Signals[name])
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=30) as response:
        return json.load(response)


def wait_for(process, done, seconds=180):
    """Waits until `done` returns a true value, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return done()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the container ended, or is not ready") from error
            time.sleep(0.2)


def test_images_run_as_a_user_and_say_what_they_are(builder):
    for target in ("trainer", "gateway", "gateway-front", "dev"):
        said = settings(builder, target)
        assert said["User"] == "1000"
        assert said["Labels"]["org.opencontainers.image.title"] == f"de-core {target}"
    for target in ("trainer", "gateway"):
        labels = settings(builder, target)["Labels"]
        assert labels["de-core.tensorflow"] == versions()["TENSORFLOW"]
    assert "8501/tcp" in settings(builder, "gateway")["ExposedPorts"]
    with mounted(builder, "wheel") as root:
        assert list(root.glob("wheels/*.whl"))


@contextmanager
def mounted(builder, target):
    """Mounts an image: `buildah run` may lose the output of a short command on a busy machine."""
    name = run([*builder.command, "from", "--pull-never", f"localhost/de-core/{target}"]).strip()
    try:
        yield Path(run([*builder.command, "mount", name]).strip())
    finally:
        run([*builder.command, "rm", name])


def packages(builder, target):
    """Returns the names in an image's folder of Python packages."""
    with mounted(builder, target) as root:
        (folder,) = root.glob("opt/app/lib/python3*/site-packages")
        return {each.name for each in folder.iterdir()}


def test_the_dev_image_lacks_nothing_that_the_doctor_looks_for(builder):
    in_container(builder, "dev", ["python3", "scripts/doctor.py"])
    in_container(builder, "dev", ["make", "--dry-run", "test"])


def test_the_gateway_serves_the_trainers_export(builder, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    models.chmod(0o777)
    volume = ["--volume", f"{models}:/models"]
    in_container(builder, "trainer", settings(builder, "trainer")["Cmd"], *volume)
    assert (models / "ranking" / "1" / "saved_model.pb").is_file()

    config = settings(builder, "gateway")
    port = some_port()
    command = [*config["Entrypoint"], *config["Cmd"], "--port", str(port)]
    healthy = ["env", f"DE_GATEWAY_PORT={port}", *config["Healthcheck"]["Test"][1:]]
    with running(builder, "gateway", command, *volume) as process:
        wait_for(process, lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").close())
        states = ask(port, "/v1/models/ranking")
        assert states["model_version_status"][0]["state"] == "AVAILABLE"
        instances = [{"user_id": "u1", "item_id": "i3"}]
        scores = ask(port, "/v1/models/ranking:predict", {"instances": instances})
        assert len(scores["predictions"]) == 1
        lookup = {"table": "user", "ids": ["u1", "nobody"]}
        assert ask(port, "/v1/models/ranking:lookup", lookup)["found"] == [True, False]
        in_container(builder, "gateway", healthy)
        code, said = stop(builder, "gateway", process)
        assert code == 0, said[-4000:]
    unused = {"keras", "h5py", "rich", "pygments", "setuptools", "tensorboard"}
    assert not unused & packages(builder, "gateway")
    with running(builder, "gateway", healthy) as process:  # no gateway is running
        said, _ = process.communicate(timeout=60)
        assert process.returncode != 0, said


def test_the_gateway_in_front_of_model_servers_starts_without_tensorflow(builder):
    config, port = settings(builder, "gateway-front"), some_port()
    assert "DE_GATEWAY_ENGINE=tfserving" in config["Env"]
    command = [*config["Entrypoint"], "--upstreams", "127.0.0.1:9", "--models", "m"]
    with running(builder, "gateway-front", [*command, "--port", str(port)]) as process:
        live = f"http://127.0.0.1:{port}/livez"
        wait_for(process, lambda: urllib.request.urlopen(live).close())
        code, said = stop(builder, "gateway-front", process)
        assert code == 0, said[-4000:]
    assert "tensorflow" not in packages(builder, "gateway-front")
    assert megabytes(builder, "gateway-front") <= megabytes(builder, "python") + 150


def megabytes(builder, target):
    number, unit = builder.size(target).split()
    return float(number) * {"MB": 1, "GB": 1000}[unit]


def test_the_trainer_stops_when_it_is_told_to(builder, tmp_path):
    tmp_path.chmod(0o777)
    script = "import pathlib, time; pathlib.Path('/models/runs').touch(); time.sleep(600)"
    volume = ["--volume", f"{tmp_path}:/models"]
    with running(builder, "trainer", ["python", "-c", script], *volume) as process:
        wait_for(process, (tmp_path / "runs").stat)
        code, said = stop(builder, "trainer", process)
    assert code != 0
    assert "KeyboardInterrupt" in said
