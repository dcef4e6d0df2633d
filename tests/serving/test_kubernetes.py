"""The Kubernetes example matches Kubernetes' schemas, the gateway's flags and the image."""

import re

import kubernetes_validate
import pytest
import yaml

from server.settings import flag_of, load_settings
from tests.serving.test_model_server_stage import instructions
from tests.serving.tools import ROOT

FOLDER = ROOT / "examples" / "serve"
FILES = sorted(path.name for path in FOLDER.glob("kubernetes*.yaml"))
GATEWAYS = ["kubernetes.yaml", "kubernetes-embedded.yaml"]


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


def pod_of(name):
    (deployment,) = [each for each in documents(name) if each["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]


def stage_of(container):
    return re.match(r"de-core/([\w-]+):", container["image"])[1]


@pytest.mark.parametrize("release", ["1.29", "1.37"])
@pytest.mark.parametrize("name", FILES)
def test_kubernetes_own_schemas_accept_it(name, release):
    for document in documents(name):
        kubernetes_validate.validate(document, release, strict=True)


@pytest.mark.parametrize("name", FILES)
def test_the_selectors_find_the_pods_of_the_deployment(name):
    (deployment, *others) = documents(name)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for each in others:
        selector = each["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels


@pytest.mark.parametrize("name", GATEWAYS)
def test_the_gateway_takes_the_arguments_and_has_the_time_to_stop(name):
    pod = pod_of(name)
    (gateway,) = pod["containers"]
    arguments = gateway["args"]
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    engine = (
        "tfserving"
        if "ENV DE_GATEWAY_ENGINE=tfserving" in instructions(stage_of(gateway))
        else "embedded"
    )
    settings = load_settings(
        engine=engine, **{flag[2:].replace("-", "_"): value for flag, value in given.items()}
    )
    assert all(flag == flag_of(flag[2:].replace("-", "_")) for flag in given)
    ports = {each["name"]: each["containerPort"] for each in gateway["ports"]}
    assert ports == {"http": settings.port, "grpc": settings.grpc_port}
    least = settings.drain_seconds + settings.shutdown_seconds
    assert pod["terminationGracePeriodSeconds"] > least
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = gateway[probe]["httpGet"]
        assert asked["port"] == "http"
        assert asked["path"] == ("/readyz" if probe == "readinessProbe" else "/livez")


def test_the_gateways_find_the_model_server():
    (gateway,) = pod_of("kubernetes.yaml")["containers"]
    upstream, port = gateway["args"][gateway["args"].index("--upstreams") + 1].split(":")
    _, service = documents("kubernetes-model-server.yaml")
    assert service["metadata"]["name"] == upstream
    assert int(port) in [each["port"] for each in service["spec"]["ports"]]


def test_the_model_server_has_the_ports_and_the_model_of_its_image():
    (server,) = pod_of("kubernetes-model-server.yaml")["containers"]
    (exposed,) = [line for line in instructions("model-server") if line.startswith("EXPOSE ")]
    assert {each["containerPort"] for each in server["ports"]} == set(map(int, exposed.split()[1:]))
    (model,) = [each["value"] for each in server["env"] if each["name"] == "MODEL_NAME"]
    assert server["readinessProbe"]["httpGet"]["path"] == f"/v1/models/{model}/metadata"


@pytest.mark.parametrize("name", FILES)
def test_it_runs_as_the_image_says(name):
    pod = pod_of(name)
    (container,) = pod["containers"]
    assert f"USER {pod['securityContext']['runAsUser']}" in instructions(stage_of(container))
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
