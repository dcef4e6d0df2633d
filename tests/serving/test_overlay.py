"""The overlay is applied to TensorFlow Serving's tree once, or fails with the reason."""

import ast
import sys

import apply_overlay
import pytest
from apply_overlay import LABEL, OverlayError, apply, labels_in, with_label
from versions import versions

from tests.serving.tools import ROOT, SERVING_OPS
from tests.support import commands

# The forms of upstream's list since 2.15.
PLAIN = 'SUPPORTED_TENSORFLOW_OPS = [\n    "@a//b:c",\n]\n'
ADDED = (
    "package()\n\nSUPPORTED_TENSORFLOW_OPS = if_v2([]) + if_not_v2([\n"
    '    "@org//contrib:ops",\n]) + [\n    # A remark.\n    "@text//:lib",\n]\n\n'
    'cc_library(\n    name = "server_lib",\n    deps = [":x"] + SUPPORTED_TENSORFLOW_OPS,\n)\n'
)
SHAPES = {
    "plain": PLAIN,
    "added": ADDED,
    "one line": 'SUPPORTED_TENSORFLOW_OPS = ["@a//b:c"]\n',
    "no last comma": 'SUPPORTED_TENSORFLOW_OPS = [\n    "@a//b:c"\n]\n',
    "empty": "SUPPORTED_TENSORFLOW_OPS = []\n",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_the_label_is_added_once_and_nothing_else_changes(text):
    changed = with_label(text)
    assert labels_in(changed) == labels_in(text) | {LABEL}
    assert with_label(changed) == changed
    without = [node for node in ast.walk(ast.parse(changed)) if getattr(node, "value", 0) != LABEL]
    assert len(without) == len(list(ast.walk(ast.parse(text))))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cc_library(name = 'x')\n", "0 assignments"),
        (PLAIN + PLAIN, "2 assignments"),
        ("SUPPORTED_TENSORFLOW_OPS = select({})\n", "must end in a list"),
        ("if x\n", "plain statements"),
    ],
)
def test_an_upstream_that_moved_is_refused(text, said):
    with pytest.raises(OverlayError, match=said):
        with_label(text)


@pytest.fixture
def tree(tmp_path):
    server = tmp_path / apply_overlay.SERVER
    server.parent.mkdir(parents=True)
    server.write_text(ADDED)
    return tmp_path


def test_the_package_holds_every_source_of_the_library(tree):
    count = apply(tree, ROOT)
    package = tree / apply_overlay.PACKAGE
    copied = {path.relative_to(package) for path in package.rglob("*.*")}
    copied = {path for path in copied if path.suffix in (".h", ".cc", ".inc")}
    code = ROOT / "de_core" / "cc"
    assert copied == {
        path.relative_to(ROOT)
        for folder in ("engine", "kernels", "ops", "tfra")
        for path in (code / folder).rglob("*.*")
        if path.suffix in (".h", ".cc", ".inc")
    }
    assert len(copied) == count
    assert (package / "BUILD.bazel").is_file()


def test_applying_again_updates_the_files_and_keeps_the_list(tree):
    apply(tree, ROOT)
    once = (tree / apply_overlay.SERVER).read_text()
    gone = tree / apply_overlay.PACKAGE / "de_core" / "cc" / "engine" / "no_longer_there.cc"
    gone.write_text("#error")
    apply(tree, ROOT)
    assert not gone.exists()
    assert (tree / apply_overlay.SERVER).read_text() == once


def test_nothing_is_written_where_the_list_is_missing(tree):
    (tree / apply_overlay.SERVER).write_text("# moved\n")
    with pytest.raises(OverlayError, match="0 assignments"):
        apply(tree, ROOT)
    assert not (tree / apply_overlay.PACKAGE).exists()


def test_the_script_says_what_it_did_and_what_is_wrong(tree, tmp_path):
    script = [sys.executable, SERVING_OPS / "apply_overlay.py"]
    done = commands.run(*script, tree, "--any-version")
    assert done.returncode == 0, done.stderr
    assert LABEL in done.stdout
    wrong = commands.run(*script, tree)
    assert wrong.returncode == 1
    assert "git -C" in wrong.stderr
    nowhere = commands.run(*script, tmp_path / "none", "--any-version")
    assert nowhere.returncode == 1
    assert str(apply_overlay.SERVER) in nowhere.stderr


def test_the_images_use_the_versions_of_the_one_place():
    named = versions()
    text = (ROOT / "Dockerfile").read_text("utf-8")
    defaults = dict(
        line.removeprefix("ARG ").split("=", 1)
        for line in text.splitlines()
        if line.startswith("ARG ") and "=" in line
    )
    assert {name: defaults[name] for name in named if name in defaults} == {
        name: value for name, value in named.items() if name in defaults
    }
    assert {"TENSORFLOW", "TENSORFLOW_SERVING", "SERVING_BUILD_IMAGE"} <= set(defaults)


def test_the_package_compiles_the_engine_with_the_flags_of_the_library():
    cmake = (ROOT / "de_core" / "CMakeLists.txt").read_text("utf-8")
    bazel = (SERVING_OPS / "overlay" / "BUILD.bazel").read_text("utf-8")
    for flag in ("-ffp-contract=off", "-fno-math-errno"):
        assert flag in cmake
        assert f'"{flag}"' in bazel
    assert "alwayslink = 1" in bazel
