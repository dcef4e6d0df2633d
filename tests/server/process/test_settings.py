"""Tests settings: sources, precedence, and error messages."""

import pytest

from server.errors import StartError
from server.process.server import uvicorn_config
from server.settings import Settings, flag_of, load_settings, settings_text


def test_a_flag_wins_over_the_environment_that_over_a_file_and_that_over_the_default(
    monkeypatch, tmp_path
):
    file = tmp_path / "gateway.yaml"
    file.write_text("port: 9002\nthreads: 5\nmodel_dir: y\nmax_ids: 3\n")
    monkeypatch.setenv("DE_GATEWAY_PORT", "9000")
    monkeypatch.setenv("DE_GATEWAY_THREADS", "3")
    assert load_settings(model_dir="x").max_ids == 100_000
    settings = load_settings(settings_file=str(file), port="9001")
    assert (settings.port, settings.threads, settings.max_ids) == (9001, 3, 3)
    monkeypatch.setenv("DE_GATEWAY_SETTINGS_FILE", str(file))
    assert load_settings().max_ids == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("prot: 1", "prot in "),
        ("[1]", "must hold settings by name"),
        ("{", "must be readable YAML or JSON"),
        ("port: many", "--port (or DE_GATEWAY_PORT): "),
        (None, "must be readable YAML or JSON"),
    ],
)
def test_a_wrong_settings_file_is_reported(tmp_path, content, problem):
    file = tmp_path / "gateway.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(StartError) as caught:
        load_settings(model_dir="x", settings_file=str(file))
    assert problem in str(caught.value)


def test_effective_settings_can_be_printed_and_read_again(tmp_path):
    file = tmp_path / "gateway.yaml"
    settings = load_settings(model_dir="x", threads="7", batch_rows="32")
    file.write_text(settings_text(settings))
    again = load_settings(settings_file=str(file))
    assert again == settings.model_copy(update={"settings_file": file})


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e16"])
def test_seconds_have_a_bound(seconds):
    """A request with endless time fails in TensorFlow, and other endless times in the server."""
    names = [name for name in Settings.model_fields if name.endswith("_seconds")]
    with pytest.raises(StartError) as caught:
        load_settings(model_dir="x", **dict.fromkeys(names, seconds))
    told = str(caught.value).splitlines()
    assert [line.split()[0] for line in told] == [flag_of(name) for name in names]
    assert all("less than or equal to 1000000000. Received" in line for line in told)


def test_the_time_for_a_shutdown_is_rounded_up_to_whole_seconds():
    settings = load_settings(model_dir="x", shutdown_seconds="2.4")
    assert uvicorn_config(None, settings, "off").timeout_graceful_shutdown == 3


def test_proxies_on_an_ipv6_socket_are_named_by_their_ipv4_addresses():
    proxies = "::ffff:10.0.0.5, ::ffff:10.1.0.0/112,::1"
    settings = load_settings(model_dir="x", trusted_proxies=proxies)
    assert settings.trusted_proxies == "10.0.0.5/32,10.1.0.0/16,::1"


def test_each_engine_requires_its_models():
    with pytest.raises(StartError) as caught:
        load_settings(engine="tfserving")
    told = str(caught.value).splitlines()
    assert [line.split()[0] for line in told] == ["--upstreams", "--models"]
    with pytest.raises(StartError, match="--model-dir"):
        load_settings(model_dir="")
    assert load_settings(engine="tfserving", upstreams="a:1", models="m").model_dir is None
    for wrong in ("latest:0", "newest", "1,", ""):
        with pytest.raises(StartError, match="--version-policy"):
            load_settings(model_dir="x", version_policy=wrong)
