"""The Kubernetes example matches Kubernetes' schemas, the gateway's flags and the image."""

import re

import kubernetes_validate
import pytest
import yaml

from server.settings import flag_of, load_settings
from tests.serving.test_model_server_stage import instructions
from tests.serving.tools import ROOT


@pytest.fixture(scope="module")
def documents():
    text = (ROOT / "examples" / "serve" / "kubernetes.yaml").read_text("utf-8")
    return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def pod(documents):
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]


@pytest.mark.parametrize("release", ["1.29", "1.37"])
def test_kubernetes_own_schemas_accept_it(documents, release):
    for document in documents:
        kubernetes_validate.validate(document, release, strict=True)


def test_kubernetes_own_schemas_refuse_a_mistake(documents):
    (service,) = [each for each in documents if each["kind"] == "Service"]
    wrong = {**service, "spec": {**service["spec"], "portz": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_the_gateway_takes_the_arguments_and_has_the_time_to_stop(pod):
    (gateway,) = pod["containers"]
    arguments = gateway["args"]
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    settings = load_settings(
        engine="tfserving", **{flag[2:].replace("-", "_"): value for flag, value in given.items()}
    )
    assert all(flag == flag_of(flag[2:].replace("-", "_")) for flag in given)
    ports = {each["name"]: each["containerPort"] for each in gateway["ports"]}
    assert ports == {"http": settings.port, "grpc": settings.grpc_port}
    least = settings.drain_seconds + settings.shutdown_seconds
    assert pod["terminationGracePeriodSeconds"] > least


def test_it_runs_as_the_image_says(pod):
    (gateway,) = pod["containers"]
    stage = re.match(r"de-core/([\w-]+):", gateway["image"])[1]
    lines = instructions(stage)
    assert f"USER {pod['securityContext']['runAsUser']}" in lines
    assert "ENV DE_GATEWAY_ENGINE=tfserving" in lines
    assert pod["securityContext"]["runAsNonRoot"]
    assert gateway["securityContext"]["readOnlyRootFilesystem"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = gateway[probe]["httpGet"]
        assert asked["port"] == "http"
        assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")
