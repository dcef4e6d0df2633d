"""`python -m server` with a start-up error: one sentence, an exit status, no traceback."""

import io
import re
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from server.app import create_app_from_environment
from server.cli import main
from server.errors import StartError
from server.process.start_checks import check_start
from server.settings import flag_of, load_settings
from tests.server.support.gateway_process import COMMAND, tls_files, write_key
from tests.support import commands


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process, for errors before anything starts."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def assert_refused(done: subprocess.CompletedProcess[str], sentence: str, lines: int = 1) -> None:
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == lines, done.stderr
    assert done.stdout == ""


def test_help_teaches_flags_environment_and_requests():
    done = run_here("--help")
    assert done.returncode == 0
    for word in ("--model-dir DIR", "Required", "DE_GATEWAY_POLL_SECONDS=5", ":predict", ":lookup"):
        assert word in done.stdout
    assert "Default: 8501." in done.stdout


def test_a_model_folder_that_does_not_exist(tmp_path):
    done = commands.run(*COMMAND, "--model-dir", tmp_path / "nowhere")
    assert_refused(done, "The model folder must exist. Received: --model-dir=")


def test_a_routes_file_in_a_folder_that_does_not_exist(tmp_path):
    file = tmp_path / "nowhere" / "routes.json"
    done = run_here("--model-dir", str(tmp_path), "--routes-file", str(file))
    assert_refused(
        done, f"must exist: create it, or name another file. Received: --routes-file={file}"
    )


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("package", "flags", "sentence"),
    [
        ("tensorflow", (), "The embedded engine needs TensorFlow: pip install tensorflow."),
        (
            "opentelemetry.sdk.trace",
            ("--tracing",),
            "--tracing needs: pip install 'de-core-gateway[otel]'. Received:",
        ),
    ],
)
def test_a_missing_package_is_named_once(package, flags, sentence, workers, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    done = run_here("--model-dir", str(tmp_path), "--workers", workers, *flags)
    assert_refused(done, sentence)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_port_that_another_process_shares_is_refused(tmp_path, flag, workers):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        other = ("--port", "0") if flag != "--port" else ()
        done = run_here("--model-dir", str(tmp_path), flag, port, *other, "--workers", workers)
    assert_refused(done, f"Port {port} of 127.0.0.1 must be free to listen on")
    assert f"choose another with {flag}." in done.stderr


@pytest.mark.parametrize(
    ("first", "second"),
    [("port", "grpc_port"), ("port", "admin_port"), ("grpc_port", "admin_port")],
)
def test_two_equal_ports_are_refused(tmp_path, first, second):
    _, keys = write_key(tmp_path, "admin")
    ports = {"port": 0, first: 8477, second: 8477}
    sentence = f"{flag_of(first)} and {flag_of(second)} must differ. Received: 8477 for both."
    with pytest.raises(StartError, match=re.escape(sentence)):
        check_start(load_settings(model_dir=tmp_path, keys_file=keys, **ports))


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("spoiled", ["cert", "key", "both", "client ca"])
def test_certificates_that_cannot_be_used(tmp_path, spoiled, workers):
    certificate, key = tls_files(tmp_path)
    sentence, more = "The files must hold a certificate and its private key", ()
    if spoiled == "both":
        certificate, key = key, certificate
    elif spoiled == "client ca":
        sentence = "The file must hold certificates as PEM. Received: --tls-client-ca="
        more = ("--tls-client-ca", str(key))
    else:
        {"cert": certificate, "key": key}[spoiled].write_text("nothing")
    flags = ("--tls-cert", str(certificate), "--tls-key", str(key), "--port", "0", *more)
    done = run_here("--model-dir", str(tmp_path), *flags, "--workers", workers)
    assert_refused(done, sentence)


def test_client_certificates_without_tls_are_refused(tmp_path):
    done = run_here("--model-dir", str(tmp_path), "--tls-client-ca", __file__)
    assert_refused(done, f"need --tls-cert and --tls-key. Received: --tls-client-ca={__file__}")


@pytest.mark.parametrize(
    ("versions", "flags", "sentence"),
    [
        ((), (), "The model folder must hold a version to serve."),
        ((), ("labels", "stable=1"), "The model folder must hold a version to serve."),
        ((1, 2), ("version_policy", "9"), "Received: 9; model m has 1, 2."),
        ((1, 2), ("labels", "stable=9"), "Received: m:stable=9; --version-policy=latest serves 2"),
        ((1, 2), ("labels", "stable=1"), "Received: m:stable=1; --version-policy=latest serves 2"),
        ((1, 2), ("labels", "new=2, stable=9"), "Received: m:stable=9;"),
        ((1, 2), ("labels", "x:stable=1"), "serves no version of model x."),
        ((1, 2), ("labels", "stable=2"), None),
        ((1, 2), ("version_policy", "1,2"), None),
    ],
)
def test_a_missing_version_is_logged_once(tmp_path, caplog, versions, flags, sentence):
    for version in versions:
        (tmp_path / "m" / str(version)).mkdir(parents=True)
        (tmp_path / "m" / str(version) / "saved_model.pb").touch()
    (tmp_path / "m").mkdir(exist_ok=True)
    settings = load_settings(model_dir=tmp_path / "m", port=0, **dict([flags] if flags else []))
    check_start(settings)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (sentence is not None)
    assert all(sentence in line for line in told)
    caplog.clear()
    check_start(settings, is_worker=True)
    assert not caplog.records


def test_all_problems_of_the_settings_are_told_at_once_line_by_line(monkeypatch):
    monkeypatch.setenv("DE_GATEWAY_PROT", "9000")
    done = run_here("--port", "99999", "--threads", "many")
    assert_refused(done, "DE_GATEWAY_PROT is not a setting", lines=4)
    _, folder, port, threads = done.stderr.splitlines()
    assert "--model-dir (or DE_GATEWAY_MODEL_DIR) must be given" in folder
    assert port.startswith("--port (or DE_GATEWAY_PORT): ")
    assert port.endswith("Received: 99999")
    assert threads.startswith("--threads (or DE_GATEWAY_THREADS): ")


def test_an_unknown_flag():
    done = run_here("--modeldir", "x")
    assert done.returncode == 2
    assert "unrecognized arguments: --modeldir" in done.stderr


NEEDED = "needs --upstream-ca, --upstream-cert and --upstream-key"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"upstream_cert": __file__}, NEEDED),
        ({"upstream_key": __file__}, NEEDED),
        ({"upstream_cert": __file__, "upstream_key": __file__}, NEEDED),
        ({"upstream_token_file": "/nowhere"}, "--upstream-token-file=/nowhere"),
        ({"upstream_token_file": __file__}, "must hold one key or token"),
    ],
)
def test_settings_for_upstreams_that_cannot_be_used_are_refused(monkeypatch, wrong, said):
    flags = {"engine": "tfserving", "upstreams": "h:1", "models": "m", **wrong}
    with pytest.raises(StartError, match=re.escape(said)):
        check_start(load_settings(**flags, port=0))
    if said is NEEDED:
        for name, value in flags.items():
            monkeypatch.setenv(f"DE_GATEWAY_{name.upper()}", value)
        with pytest.raises(StartError, match=re.escape(said)):
            create_app_from_environment()
