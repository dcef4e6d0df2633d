"""The images work: one trains and exports, one serves and looks up. Docker builds and runs them."""

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml
from versions import versions

from tests.server.support.eventually import wait_until
from tests.serving.tools import ROOT, needs, run
from tests.support.applies import applies_if
from tests.support.ports import some_port

pytestmark = [
    pytest.mark.slow,
    needs("docker", "dockerd", "docker-compose", "debootstrap"),
    applies_if(os.geteuid() == 0, "root, for Docker's daemon"),
]
WORK = ROOT / "build" / "images"  # kept, so that the next run reuses the layers
BASE = "de-core/python"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES = "python3,python3-venv,python3-pip,python3-dev,ca-certificates"
BASES = {"PYTHON_BUILD_IMAGE": BASE, "PYTHON_RUN_IMAGE": BASE}
TARGETS = ("wheel", "trainer", "gateway", "gateway-front", "dev")


@pytest.fixture(scope="module")
def docker():
    """Returns a function that runs Docker's command, with a daemon that needs no registry."""
    WORK.mkdir(parents=True, exist_ok=True)
    socket = f"unix://{WORK}/docker.sock"
    options = ["--host", socket, "--data-root", WORK / "docker", "--exec-root", WORK / "exec"]
    options += ["--pidfile", WORK / "docker.pid", "--iptables=false", "--bridge=none"]
    with (WORK / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(["dockerd", *map(str, options)], stdout=log, stderr=log)

    def docker(*command, **settings):
        return run(["docker", "--host", socket, *command], **settings).strip()

    try:
        wait_until(Path(f"{WORK}/docker.sock").exists)
        if not docker("images", "--quiet", BASE):
            import_base(docker)
        yield docker
    finally:
        daemon.terminate()
        daemon.wait(60)


def import_base(docker):
    """Makes a Debian with Python in place of Docker Hub's images, which need a registry."""
    system = WORK / "debian"
    if not system.exists():
        unfinished = WORK / "debian.unfinished"
        run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", unfinished])
        for name in ("python", "python3"):
            (unfinished / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
        # The authorities that this machine trusts, for a package index of its own.
        (unfinished / CERTIFICATES.relative_to("/")).write_bytes(CERTIFICATES.read_bytes())
        unfinished.rename(system)
    archive = WORK / "debian.tar"
    run(["tar", "-C", system, "-cf", archive, "."])
    # Debian's pip requires this setting to install into the system's Python.
    settings = (
        f"ENV PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_CERT={CERTIFICATES}"
    )
    docker("import", "--change", settings, archive, BASE)
    archive.unlink()


@pytest.fixture(scope="module")
def images(docker):
    """Builds the images as `make images` does; returns `docker`."""
    arguments = [f"--build-arg={name}={value}" for name, value in BASES.items()]
    host = f"DOCKER_HOST=unix://{WORK}/docker.sock"
    build = f"BUILD=--network=host {' '.join(arguments)}"
    run(["make", "images", f"IMAGES={' '.join(TARGETS)}", build, host], cwd=ROOT, timeout=3600)
    return docker


@pytest.fixture
def start(images):
    """Returns a function that starts a container and returns its id; all are removed at the end."""
    started = []

    def start(target, *command, options=()):
        run_it = ["run", "--detach", "--network=host", *options, f"de-core/{target}", *command]
        started.append(images(*run_it))
        return started[-1]

    yield start
    if started:
        images("rm", "--force", *started)


def configuration(docker, target):
    """Returns an image's configuration."""
    return json.loads(docker("image", "inspect", "--format={{json .Config}}", f"de-core/{target}"))


def packages(docker, target):
    """Returns the names in an image's folder of Python packages."""
    listing = "import os, numpy; print(*os.listdir(os.path.dirname(numpy.__path__[0])))"
    return docker(
        "run", "--rm", "--network=none", "--entrypoint=python", f"de-core/{target}", "-c", listing
    ).split()


def stop(docker, container):
    """Stops a container by its stop signal; returns its exit status and its log's end."""
    docker("stop", "--time=60", container)
    return docker("wait", container), docker("logs", "--tail=50", container)


def health(docker, container):
    return docker("inspect", "--format={{.State.Health.Status}}", container)


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=30) as response:
        return json.load(response)


def answers(port, path):
    try:
        return ask(port, path) is not None
    except OSError:
        return False


def test_images_run_as_a_user_and_say_what_they_are(images):
    for target in ("trainer", "gateway", "gateway-front", "dev"):
        said = configuration(images, target)
        assert said["User"] == "1000"
        assert said["Labels"]["org.opencontainers.image.title"] == f"de-core {target}"
    for target in ("trainer", "gateway"):
        labels = configuration(images, target)["Labels"]
        assert labels["de-core.tensorflow"] == versions()["TENSORFLOW"]
    assert "8501/tcp" in configuration(images, "gateway")["ExposedPorts"]
    wheels = images("run", "--rm", "--network=none", "de-core/wheel", "ls", "/wheels")
    assert re.fullmatch(r"de_core-\S+\.whl", wheels)


def test_the_dev_image_lacks_nothing_that_the_doctor_looks_for(images):
    for command in (["python3", "scripts/doctor.py"], ["make", "--dry-run", "test"]):
        images("run", "--rm", "--network=none", "de-core/dev", *command)


def test_the_gateway_serves_the_trainers_export(images, start, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    models.chmod(0o777)
    volume = [f"--volume={models}:/models"]
    images("run", "--rm", "--network=none", *volume, "de-core/trainer", timeout=900)
    assert (models / "ranking" / "1" / "saved_model.pb").is_file()

    port = some_port()
    options = [*volume, f"--env=DE_GATEWAY_PORT={port}", "--health-interval=1s"]
    gateway = start("gateway", options=options)
    wait_until(lambda: health(images, gateway) == "healthy")
    states = ask(port, "/v1/models/ranking")
    assert states["model_version_status"][0]["state"] == "AVAILABLE"
    instances = [{"user_id": "u1", "item_id": "i3"}]
    scores = ask(port, "/v1/models/ranking:predict", {"instances": instances})
    assert len(scores["predictions"]) == 1
    lookup = {"table": "user", "ids": ["u1", "nobody"]}
    assert ask(port, "/v1/models/ranking:lookup", lookup)["found"] == [True, False]
    code, said = stop(images, gateway)
    assert code == "0", said
    unused = {"keras", "h5py", "rich", "pygments", "setuptools", "tensorboard"}
    assert not unused & set(packages(images, "gateway"))


def test_a_gateway_that_does_not_answer_is_unhealthy(images, start):
    options = ["--entrypoint=sleep", "--health-interval=1s", "--health-start-period=0s"]
    container = start("gateway", "600", options=[*options, "--health-retries=1"])
    wait_until(lambda: health(images, container) == "unhealthy")


def test_the_gateway_in_front_of_model_servers_starts_without_tensorflow(images, start):
    port = some_port()
    command = ["--upstreams", "127.0.0.1:9", "--models", "m", "--port", str(port)]
    front = start("gateway-front", *command)
    assert "DE_GATEWAY_ENGINE=tfserving" in configuration(images, "gateway-front")["Env"]
    wait_until(lambda: answers(port, "/livez"))
    code, said = stop(images, front)
    assert code == "0", said
    assert "tensorflow" not in packages(images, "gateway-front")
    assert size(images, "gateway-front") <= size(images, "python") + 150e6


@pytest.mark.usefixtures("images")
def test_the_compose_file_trains_and_then_serves(tmp_path):
    builds = {"build": {"network": "host", "args": BASES}}
    services = {name: builds for name in ("trainer", "embedded")}
    (tmp_path / "bases.yaml").write_text(yaml.safe_dump({"services": services}))
    port = some_port()
    settings = {"DOCKER_HOST": f"unix://{WORK}/docker.sock", "PORT": str(port)}

    def compose(*command):
        files = ["-f", ROOT / "examples/serve/compose.yaml", "-f", tmp_path / "bases.yaml"]
        command = ["docker-compose", *files, "--profile", "embedded", *command]
        return run(command, env=settings, timeout=3600)

    try:
        compose("up", "--build", "--detach", "embedded")
        wait_until(lambda: answers(port, "/readyz"))
        instances = [{"user_id": "u1", "item_id": "i3"}]
        scores = ask(port, "/v1/models/ranking:predict", {"instances": instances})
        assert len(scores["predictions"]) == 1
    finally:
        compose("down", "--volumes")


def size(docker, target):
    return int(docker("image", "inspect", "--format={{.Size}}", f"de-core/{target}"))


def test_the_trainer_stops_when_it_is_told_to(images, start, tmp_path):
    tmp_path.chmod(0o777)
    script = "import pathlib, time; pathlib.Path('/models/runs').touch(); time.sleep(600)"
    trainer = start("trainer", "python", "-c", script, options=[f"--volume={tmp_path}:/models"])
    wait_until((tmp_path / "runs").exists)
    code, said = stop(images, trainer)
    assert code in ("1", "130"), said  # not 137: Docker did not have to kill it
