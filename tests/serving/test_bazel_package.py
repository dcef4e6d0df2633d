"""Bazel builds the overlay's package, and what is linked with it knows the ops."""

import json
import subprocess
from pathlib import Path

import apply_overlay
import pytest

from tests.serving import bazel_standin
from tests.serving.tools import needs

pytestmark = [pytest.mark.slow, needs("bazel", "g++")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    import tensorflow as tf

    if not (bazel_standin.RULES / "rules" / "cc").is_dir():
        pytest.skip("needs Debian's bazel-rules-cc installed")
    return bazel_standin.make_tree(tmp_path_factory.mktemp("bazel"), Path(tf.__file__).parent)


def look_up(program, root):
    command = [program, root, "de_lookup/users", "1,7000000000", "--seconds", "0.5"]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=120, check=False
    )
    return json.loads(done.stdout.strip().splitlines()[-1])["versions"]["1"]


def test_a_linked_program_looks_up_and_alwayslink_is_what_makes_it(
    tree, export_versions, tmp_path_factory
):
    exported = export_versions(tmp_path_factory.mktemp("model"), 1)
    outputs = tmp_path_factory.mktemp("outputs")
    said = look_up(bazel_standin.build(tree, outputs), exported)
    assert said["load_error"] == ""
    assert said["embeddings"] == [1.0] * 4 + [0.5] * 4

    package = tree / apply_overlay.PACKAGE / "BUILD.bazel"
    text = package.read_text("utf-8")
    package.write_text(text.replace("alwayslink = 1", "alwayslink = 0"), "utf-8")
    said = look_up(bazel_standin.build(tree, outputs), exported)
    assert "DeFrozenTable" in said["load_error"]
    assert said["embeddings"] is None
