"""Tests the gateway in a container: first process, without TensorFlow, health check, Kubernetes."""

import os
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from server.process.health import port_of
from server.settings import drop_service_links, load_settings
from tests.server.support.eventually import PATIENCE_S, wait_until
from tests.server.support.gateway_process import COMMAND, ROOT, environment, tls_files
from tests.server.support.light_upstream import fronted
from tests.support.applies import applies_if

needs_namespace = applies_if(
    os.geteuid() == 0 and shutil.which("unshare"), "root and the program unshare"
)


@pytest.mark.parametrize(
    "first", [pytest.param(True, marks=needs_namespace), False], ids=["first-process", "any"]
)
def test_a_starting_gateway_stops_when_it_is_told_to(first, tmp_path):
    settings = tmp_path / "settings.yaml"
    os.mkfifo(settings)
    program = [*COMMAND, "--settings-file", str(settings)]
    if first:
        program = ["unshare", "--pid", "--fork", "--kill-child", *program]
    with subprocess.Popen(program, cwd=ROOT, env=environment()) as process:
        try:
            with settings.open("w"):  # the gateway blocks here while it reads its settings
                number = process.pid
                if first:
                    children = f"/proc/{number}/task/{number}/children"
                    number = int(Path(children).read_text())
                os.kill(number, signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("tls", ["", pytest.param("server", marks=pytest.mark.slow), "both"])
def test_the_health_check_sees_a_ready_gateway_past_proxies_and_tls(tmp_path, tls):
    certificate, key = map(str, tls_files(tmp_path))
    flags = ["--tls-cert", certificate, "--tls-key", key] if tls else []
    flags += ["--tls-client-ca", certificate] if tls == "both" else []
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")

    def healthy(port):
        return not subprocess.run(
            [sys.executable, "-m", "server.process.health"],
            cwd=ROOT, env={**environment(), **proxies, "DE_GATEWAY_PORT": str(port)},
            timeout=PATIENCE_S, check=False,
        ).returncode  # fmt: skip

    with fronted(tmp_path, 3, flags=flags) as (gateway, upstream):
        if tls != "both":
            gateway.tls = ssl.create_default_context(cafile=certificate) if tls else None
            gateway.wait_ready()
        wait_until(lambda: healthy(gateway.port))  # it waits for an answer only briefly
        if not tls:
            upstream.kill()
            gateway.wait_for("/readyz", lambda reply: reply.status == 503)
            assert not healthy(gateway.port)
    assert not healthy(gateway.port)


LINKS = {
    "DE_GATEWAY_SERVICE_HOST": "10.0.0.1",
    "DE_GATEWAY_SERVICE_PORT": "8501",
    "DE_GATEWAY_SERVICE_PORT_HTTP": "8501",
    "DE_GATEWAY_PORT": "tcp://10.0.0.1:8501",
    "DE_GATEWAY_PORT_8501_TCP": "tcp://10.0.0.1:8501",
    "DE_GATEWAY_PORT_8501_TCP_PROTO": "tcp",
    "DE_GATEWAY_PORT_8501_TCP_PORT": "8501",
    "DE_GATEWAY_PORT_8501_TCP_ADDR": "10.0.0.1",
    "DE_GATEWAY_ADMIN_SERVICE_HOST": "fd00::1",
    "DE_GATEWAY_ADMIN_PORT": "tcp://[fd00::1]:8502",
}


def test_kubernetes_service_variables_are_not_settings(tmp_path, monkeypatch):
    around = {**environment(), **LINKS}
    monkeypatch.setattr("tests.server.support.gateway_process.environment", lambda: around)
    with fronted(tmp_path, 3) as (gateway, _):
        gateway.wait_ready()
        assert "DE_GATEWAY_PORT_8501_TCP_ADDR" in gateway.log()


def test_settings_stay_and_so_do_mistakes():
    own = {
        "DE_GATEWAY_PORT": "9000",
        "DE_GATEWAY_GRPC_PORT": "9001",
        "DE_GATEWAY_UPSTREAMS": "10.0.0.1:8500",
        "DE_GATEWAY_PROT": "1",
        "OTHER_SERVICE_HOST": "10.0.0.1",
        "REDIS_PORT": "tcp://10.0.0.1:6379",
    }
    links = {name: value for name, value in LINKS.items() if name not in own}
    both = {**own, **links}
    assert drop_service_links(both) == sorted(links)
    assert both == own


def test_an_application_of_another_server_starts_beside_a_service_of_the_same_name(monkeypatch):
    for name, value in LINKS.items():
        monkeypatch.setenv(name, value)
    assert load_settings(model_dir="x").port == 8501
    assert [port_of(text) for text in ("", "9000", LINKS["DE_GATEWAY_PORT"])] == [8501, 9000, 8501]
