"""The steps of the Dockerfile's stage `model-server` that run without its base image."""

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import apply_overlay
import pytest
from versions import versions

from tests.server.support.eventually import PATIENCE_S
from tests.serving.model_server import LOAD_FLAGS, MODEL, ModelServer, gateway_command
from tests.serving.tools import ROOT, SERVING_OPS, run
from tests.support.applies import applies_if

RELEASE = versions()["TENSORFLOW_SERVING"]


def instructions(stage):
    """Returns the instructions of one stage of the Dockerfile, one per line."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    (begin,) = [i for i, line in enumerate(lines) if re.match(rf"FROM .* AS {stage}$", line)]
    rest = lines[begin + 1 :]
    end = next((i for i, line in enumerate(rest) if line.startswith("FROM ")), len(rest))
    return [" ".join(line.split()) for line in rest[:end] if line.strip()]


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    return run(["git", "-C", folder, *identity, *arguments]).strip()


@pytest.fixture
def upstream(tmp_path):
    """A repository whose release differs from its newest commit."""
    folder = tmp_path / "upstream"
    server = folder / apply_overlay.SERVER
    server.parent.mkdir(parents=True)
    git(tmp_path, "init", "--quiet", folder)
    for tag, text in ((RELEASE, "[]"), ("later", "['@later']")):
        server.write_text(f"{apply_overlay.LIST} = {text}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", tag)
        git(folder, "tag", tag)
    return folder


@pytest.mark.parametrize("has_git", [False, True], ids=["unpacked", "cloned"])
def test_the_stage_checks_the_release_out_of_whatever_the_devel_image_holds(
    upstream, tmp_path, has_git
):
    tree = tmp_path / "tree"
    git(tmp_path, "clone", "--quiet", upstream, tree)
    (tree / "only_later.cc").write_text("#error\n")
    if not has_git:
        shutil.rmtree(tree / ".git")
    with pytest.raises(apply_overlay.OverlayError, match="git"):
        apply_overlay.check_version(tree, RELEASE)
    (step,) = [
        line for line in instructions("model-server-build") if line.startswith("RUN git init")
    ]
    values = {"SERVING_SOURCES": str(upstream), "TENSORFLOW_SERVING": RELEASE}
    command = ["sh", "-c", step.removeprefix("RUN ")]
    for _ in range(2):
        run(command, cwd=tree, env=values)
    apply_overlay.check_version(tree, RELEASE)
    assert not (tree / "only_later.cc").exists()
    assert (tree / apply_overlay.SERVER).read_text() == f"{apply_overlay.LIST} = []\n"


def test_the_remedy_for_a_tree_of_another_version_works(upstream, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(upstream, tree)
    shutil.rmtree(tree / ".git")
    with pytest.raises(apply_overlay.OverlayError) as refused:
        apply_overlay.check_version(tree, RELEASE)
    remedy = re.search(r"Run: (.*?); or pass", str(refused.value))[1]
    assert apply_overlay.UPSTREAM in remedy
    run(["sh", "-c", remedy.replace(apply_overlay.UPSTREAM, str(upstream))])
    apply_overlay.check_version(tree, RELEASE)


@contextmanager
def first_process(tmp_path, last_line, *arguments):
    """Runs the entry point as a container does, with a server that prints its arguments."""
    program = tmp_path / "bin" / "tensorflow_model_server"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@"\necho ready\n{last_line}\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    environment |= {"MODEL_NAME": "a model", "MODEL_BASE_PATH": "/models"}
    # A shell's background jobs ignore SIGINT, and Bash cannot trap a signal that it ignored at
    # start. So `env` resets the signals first.
    command = ["env", "--default-signal", "unshare", "--pid", "--fork", "--kill-child"]
    command.append(SERVING_OPS / "run_model_server.sh")
    with subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


needs_namespace = applies_if(
    os.geteuid() == 0 and shutil.which("unshare"), "root and the program unshare"
)


@needs_namespace
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_stops_when_its_container_is_told_to(tmp_path, number):
    # Like TensorFlow Serving the program handles no signals, so as a first process it would get
    # none.
    with first_process(tmp_path, "exec sleep 3600", "--enable_batching") as process:
        said = list(iter(process.stdout.readline, "ready\n"))
        assert said == [
            "--port=8500\n",
            "--rest_api_port=8501\n",
            *(f"{flag}\n" for flag in LOAD_FLAGS),
            "--model_name=a model\n",
            "--model_base_path=/models/a model\n",
            "--enable_batching\n",
        ]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (first,) = children.read_text().split()
        os.kill(int(first), number)
        assert process.wait(PATIENCE_S) == 0


@needs_namespace
def test_a_server_that_ends_by_itself_says_how(tmp_path):
    with first_process(tmp_path, "exit 3") as process:
        assert process.wait(PATIENCE_S) == 3


@pytest.mark.slow
def test_the_health_check_waits_for_the_model(export_versions, tmp_path):
    (line,) = [line for line in instructions("model-server") if line.startswith("HEALTHCHECK")]
    shell = json.loads(line[line.index("[") :])
    root = tmp_path / "root"
    root.mkdir()
    exported = export_versions(tmp_path / "exported", 1)
    with ModelServer(gateway_command, root, tmp_path, wait=False) as server:
        command = [part.replace("8501", str(server.rest_port)) for part in shell]

        def healthy():
            environment = {**os.environ, "MODEL_NAME": MODEL}
            return subprocess.run(command, env=environment, timeout=10, check=False).returncode

        assert healthy() != 0
        (exported / "1").rename(root / "1")
        server.wait_for("AVAILABLE")
        assert healthy() == 0


@pytest.mark.parametrize("stage", ["trainer", "model-server", "gateway", "dev"])
def test_no_shell_keeps_signals_from_what_runs(stage):
    for line in instructions(stage):
        if line.startswith(("CMD", "ENTRYPOINT")):
            assert isinstance(json.loads(line.split(" ", 1)[1]), list)
