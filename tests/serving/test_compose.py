"""The compose file, the Dockerfile and the gateway's flags match."""

import re
import sys

import pytest
import yaml

from server.settings import load_settings
from tests.serving.tools import ROOT
from tests.support.commands import run


@pytest.fixture(scope="module")
def services():
    text = (ROOT / "examples" / "serve" / "compose.yaml").read_text("utf-8")
    return yaml.safe_load(text)["services"]


def test_every_service_is_a_stage_of_the_dockerfile(services):
    stages = re.findall(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.M)
    assert {each["build"]["target"] for each in services.values()} <= set(stages)
    assert {"wheel", "trainer", "model-server", "gateway", "gateway-front", "dev"} <= set(stages)
    # Some builders build every stage before the target. They must not compile TensorFlow.
    assert stages[-2:] == ["model-server-build", "model-server"]


def test_the_gateway_takes_the_flags_that_it_is_given(services):
    command = [sys.executable, "-m", "server", *services["gateway"]["command"], "--help"]
    done = run(*command)
    assert done.returncode == 0, done.stderr
    for flag in filter(lambda part: part.startswith("--"), services["gateway"]["command"]):
        assert flag in done.stdout


def test_the_gateways_have_the_time_to_stop(services):
    settings = load_settings(engine="tfserving", upstreams="m:8500", models="m")
    least = settings.drain_seconds + settings.shutdown_seconds
    for name in ("gateway", "embedded"):
        assert float(services[name]["stop_grace_period"].removesuffix("s")) > least


def test_each_waits_for_what_it_needs(services):
    assert services["gateway"]["depends_on"]["model-server"]["condition"] == "service_healthy"
    for name in ("model-server", "embedded"):
        waits = services[name]["depends_on"]["trainer"]["condition"]
        assert waits == "service_completed_successfully"


def test_the_images_have_the_version_of_the_library():
    label = re.search(r'image\.version="([^"]+)"', (ROOT / "Dockerfile").read_text("utf-8"))[1]
    assert f'version = "{label}"' in (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
