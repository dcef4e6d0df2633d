"""`python -m server` that cannot start: one sentence, a status, no traceback."""

from __future__ import annotations

import io
import os
import socket
import subprocess
from contextlib import redirect_stderr, redirect_stdout

import pytest

from server.cli import main
from tests.server.support.gateway_process import ROOT, command, environment


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Does the same without a process, for what is refused before anything begins."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch):
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)


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


def test_no_model_folder_given():
    assert_refused(run_here(), "--model-dir (or DE_GATEWAY_MODEL_DIR) must be given")


def test_a_model_folder_that_does_not_exist(tmp_path):
    done = run("--model-dir", str(tmp_path / "nowhere"))
    assert_refused(done, "The model folder must exist.")


def test_a_taken_port(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("--model-dir", str(tmp_path), "--port", port)
    assert_refused(done, f"Port {port} of 127.0.0.1 must be free to listen on")
    assert "choose another with --port." in done.stderr


def test_settings_that_are_wrong_are_told_together(tmp_path, monkeypatch):
    monkeypatch.setenv("DE_GATEWAY_PORT", "x")
    done = run_here("--model-dir", str(tmp_path), "--threads", "0")
    assert_refused(done, "--threads (or DE_GATEWAY_THREADS)", lines=2)
    assert "--port (or DE_GATEWAY_PORT)" in done.stderr


def test_an_unknown_flag():
    done = run_here("--modeldir", "x")
    assert done.returncode == 2
    assert "unrecognized arguments: --modeldir" in done.stderr
