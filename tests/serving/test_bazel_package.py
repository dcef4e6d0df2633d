"""Bazel accepts the overlay, and the build script's binary contains the ops.

Bazel itself takes half a minute to start, and the program that it links six minutes of CPU.
"""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.serving import bazel_standin
from tests.serving.tools import ROOT, SERVING_OPS, needs, run
from tests.support import commands
from tests.support.applies import applies_if

pytestmark = [
    pytest.mark.slow,
    needs("bazel", "g++", "git"),
    applies_if((bazel_standin.RULES / "rules" / "cc").is_dir(), "the package bazel-rules-cc"),
]
OPS = "//tensorflow_serving/custom_ops:de_core_ops"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tensorflow = Path(importlib.util.find_spec("tensorflow").origin).parent
    return bazel_standin.make_tree(tmp_path_factory.mktemp("bazel"), tensorflow)


def look_up(program, root):
    command = [program, root, "de_lookup/users", "1,7000000000", "--seconds", "0.5"]
    done = commands.run(*command, timeout=120)
    return json.loads(done.stdout.strip().splitlines()[-1])["versions"]["1"]


def processes(said):
    """Returns the number of compilers, archivers and linkers that Bazel started."""
    return int(re.search(r"processes?:.*?(\d+) local", said)[1])


def test_bazel_finds_the_ops_below_the_server_and_keeps_them_whole(tree):
    run([sys.executable, SERVING_OPS / "apply_overlay.py", tree])
    asked = f"attr(alwayslink, 1, somepath({bazel_standin.SERVER_TARGET}, {OPS}))"
    found = run(["bazel", "cquery", "--config=release", asked], cwd=tree)
    assert [line.split()[0] for line in found.splitlines()] == [OPS]


def test_a_linked_program_looks_up_and_alwayslink_is_what_makes_it(tree, export_versions, tmp_path):
    exported = export_versions(tmp_path / "model", 1)
    code, said = bazel_standin.build(tree, tmp_path / "server", SERVING_OPS)
    assert code == 0, said
    assert processes(said) > len(list((ROOT / "de_core" / "cc").glob("[eko]*/**/*.cc")))
    answer = look_up(tmp_path / "server", exported)
    assert answer["load_error"] == ""
    assert answer["embeddings"] == [1.0] * 4 + [0.5] * 4

    scripts = tmp_path / "serving_ops"
    shutil.copytree(SERVING_OPS, scripts)
    (tmp_path / "de_core").symlink_to(ROOT / "de_core")
    package = scripts / "overlay" / "BUILD.bazel"
    package.write_text(package.read_text("utf-8").replace("alwayslink = 1", "alwayslink = 0"))
    code, said = bazel_standin.build(tree, tmp_path / "without", scripts)
    assert code == 1
    assert processes(said) <= 3  # only archived and linked, not compiled again
    assert "must hold the ops, and does not" in said
    answer = look_up(tmp_path / "without", exported)
    assert "DeFrozenTable" in answer["load_error"]
    assert answer["embeddings"] is None
