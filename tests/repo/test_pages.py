"""Every code block on every page of the documentation runs as it stands.

The blocks of a page run from top to bottom, in an empty folder. Shell blocks run in bash. A block
that starts a server runs until the page ends.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.forks import Forks
from tests.support.page_process import blocks_of, run_page

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("server", "serving_ops", "examples", "de_core/cc/engine")
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "AGENTS.md"]
    + [ROOT / folder / "README.md" for folder in FOLDERS]
)
#: "text" is shown only: formulas, layouts, output, and commands of a machine that is not here.
#: "yaml" is compared with the manifest for Kubernetes, which another test validates.
LANGUAGES = {"python", "sh", "text", "yaml"}
#: The first line of alert rules for Prometheus. Nothing runs them.
ALERTS = "groups:"
#: Pages for tf_keras.
LEGACY = {"docs/reference/tf_keras.md"}
SLOW = {
    "docs/reference/command.md",  # each command imports TensorFlow again
    "docs/howto/migrating.md",  # tests/tfra has the same programs
    "docs/howto/serve-tfra-models.md",
    "docs/howto/upgrade-tensorflow.md",  # a command imports TensorFlow
    "docs/howto/many-features.md",  # starts a gateway
    "docs/tutorials/two-tower-retrieval.md",
    "docs/tutorials/ranking.md",
    "docs/tutorials/online-learning.md",
    "docs/tutorials/serving.md",
    "docs/tutorials/parameter-servers.md",
}
#: Blocks that do not run: the first line by page, and the reason.
LEFT_OUT = {
    "README.md": {
        "make demo    # train a ranking model, export it, serve it, ask it over HTTP": "installs",
        "pip install '.[server]' ./server  # the library, and the gateway de-core-gateway": (
            "tests/repo/test_installs.py"
        ),
        "python scripts/build_wheels.py  # needs the extra `dev`; writes into dist": (
            "tests/repo/test_wheels.py"
        ),
        (
            "# Train once, export into a volume, serve from the gateway's own process: "
            "takes minutes."
        ): "needs Docker",
        "docker build --target trainer -t de-core/trainer . && docker build --target gateway -t "
        "de-core/gateway .": "needs Docker",
    },
    "serving_ops/README.md": {
        "docker build --target model-server -t de-core/model-server --build-arg BAZEL_JOBS=8 .": (
            "needs Docker"
        ),
        "serving_ops/build_model_server.sh --tree /path/to/serving --output "
        "./tensorflow_model_server --jobs 8 --memory-mb 16384": "compiles for hours",
    },
    "server/README.md": {
        "from de_core_gateway.app import create_app_from_environment": (
            "needs a folder of models; tests/server/edge/test_extending.py runs it"
        ),
        "import numpy as np, tritonclient.http as triton": (
            "needs a gateway that serves `ranker`; tests/server/clients sends the same requests"
        ),
    },
    "docs/tutorials/serving.md": {
        "docker build --target gateway -t de-core/gateway .": "needs Docker",
        "kubectl apply -f examples/serve/kubernetes-model-server.yaml -f "
        "examples/serve/kubernetes.yaml": "needs a cluster",
    },
    "docs/reference/scaling.md": {
        "config = de.RedisTableConfig(": "needs Redis; tests/storage runs the same lines",
    },
}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_code(page: Path) -> bool:
    return any(
        block.language in ("python", "sh")
        and block.first_line not in LEFT_OUT.get(name_of(page), ())
        for block in blocks_of(page.read_text("utf-8"))
    )


@pytest.fixture
def run(forks: Forks, tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """Runs the blocks of a page in a forked process, in an empty folder."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("de-core", "-m de_core_cli"), ("python", "")):
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        script.chmod(0o755)
    (tmp_path / "empty").mkdir()

    def run(page: Path) -> CompletedProcess[str]:
        name = name_of(page)
        environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "TF_USE_LEGACY_KERAS": str(int(name in LEGACY)),
        }
        left_out = list(LEFT_OUT.get(name, ()))
        return forks.call(
            run_page, str(page), name, left_out, cwd=tmp_path / "empty", env=environment
        )

    return run


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * (name_of(page) in SLOW))
        for page in PAGES
        if has_code(page)
    ],
)
def test_the_blocks_of_a_page_run(page: Path, run: Callable[..., CompletedProcess[str]]):
    done = run(page)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_every_block_has_a_language_that_is_run_or_shown():
    found = {
        f"{name_of(page)}:{block.line}": block.language
        for page in PAGES
        for block in blocks_of(page.read_text("utf-8"))
        if block.language not in LANGUAGES
    }
    assert found == {}


def test_every_yaml_block_is_part_of_the_manifest():
    manifest = [
        line.strip() for line in (ROOT / "examples/serve/kubernetes.yaml").read_text().splitlines()
    ]
    found = [
        [line.strip() for line in block.text.splitlines()]
        for page in PAGES
        for block in blocks_of(page.read_text("utf-8"))
        if block.language == "yaml" and not block.first_line.startswith(ALERTS)
    ]
    assert found
    for block in found:
        begin = manifest.index(block[0])
        assert manifest[begin : begin + len(block)] == block


def test_every_block_that_is_left_out_exists():
    for name, lines in LEFT_OUT.items():
        first = {block.first_line for block in blocks_of((ROOT / name).read_text("utf-8"))}
        assert set(lines) - first == set(), name


def test_a_block_that_fails_is_noticed(root: Path, run: Callable[..., CompletedProcess[str]]):
    page = root / "build" / f"page_{os.getpid()}.md"
    page.parent.mkdir(exist_ok=True)
    try:
        for code in ("python\nassert 1 == 2", "sh\nfalse", "sh\nde-core serve --no-such-flag"):
            page.write_text(f"# A page\n\n```{code}\n```\n", "utf-8")
            done = run(page)
            assert done.returncode == 1, done.stdout
    finally:
        page.unlink()
