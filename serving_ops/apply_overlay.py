#!/usr/bin/env python3
"""Adds the ops of dynamic tables to a TensorFlow Serving source tree.

    python3 serving_ops/apply_overlay.py /tensorflow-serving

It copies `de_core/cc/{engine,kernels,ops,tfra}` and a Bazel package to
`tensorflow_serving/custom_ops`, and adds one label to SUPPORTED_TENSORFLOW_OPS in
`tensorflow_serving/model_servers/BUILD`. A second run updates the copied files and leaves the label
alone. It needs only Python 3.10, the version in the build image.
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import shlex
import shutil
import subprocess
import sys

from versions import versions

HERE = pathlib.Path(__file__).resolve().parent
LABEL = "//tensorflow_serving/custom_ops:de_core_ops"
LIST = "SUPPORTED_TENSORFLOW_OPS"
PACKAGE = pathlib.PurePath("tensorflow_serving/custom_ops")
SERVER = pathlib.PurePath("tensorflow_serving/model_servers/BUILD")
FOLDERS = ("engine", "kernels", "ops", "tfra")
SUFFIXES = (".cc", ".h", ".inc")
UPSTREAM = "https://github.com/tensorflow/serving"


class OverlayError(Exception):
    """The overlay does not fit the tree."""


def labels_in(text: str) -> set[str]:
    """Returns the labels in SUPPORTED_TENSORFLOW_OPS of a BUILD file.

    Raises:
        OverlayError: The file does not have exactly one such list.
    """
    constants = (node for node in ast.walk(_value_of(text)) if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def with_label(text: str) -> str:
    """Returns a BUILD file's text with our label in SUPPORTED_TENSORFLOW_OPS, once.

    Raises:
        OverlayError: Upstream's file has a form that this script does not know.
    """
    if LABEL in labels_in(text):
        return text
    value = _value_of(text)
    last = value.right if isinstance(value, ast.BinOp) else value
    if not isinstance(last, ast.List) or last.end_lineno is None or last.end_col_offset is None:
        raise OverlayError(
            f"{LIST} must end in a list, `[…]` or `… + […]`. "
            f"Received: {type(last).__name__} at line {last.lineno}."
        )
    # Insert the label as the first element, where no comma can be missing before it.
    lines = text.splitlines(keepends=True)
    line = lines[last.lineno - 1].encode()
    opening = last.col_offset + 1
    rest = line[opening:].decode()
    separator = "\n" if rest.strip() else ""
    lines[last.lineno - 1] = f'{line[:opening].decode()}\n    "{LABEL}",{separator}{rest}'
    return "".join(lines)


def apply(tree: pathlib.Path, sources: pathlib.Path) -> int:
    """Copies the package into a tree, and adds the label.

    Returns:
        The number of source files in the package.

    Raises:
        OverlayError: `tree` or `sources` is the wrong folder, or upstream changed its files.
    """
    server = tree / SERVER
    if not server.is_file():
        raise OverlayError(
            f"the tree must be TensorFlow Serving's sources, with {SERVER} in it. Received: {tree}"
        )
    code = sources / "de_core" / "cc"
    missing = [name for name in FOLDERS if not (code / name).is_dir()]
    if missing:
        raise OverlayError(
            f"the sources of the ops must lie in {code}. Received: no {', '.join(missing)} there"
        )
    changed = with_label(server.read_text("utf-8"))  # fails before anything is written
    package = tree / PACKAGE
    shutil.rmtree(package / "de_core", ignore_errors=True)
    count = 0
    for name in FOLDERS:
        for path in sorted((code / name).rglob("*.*")):
            if path.suffix in SUFFIXES:
                target = package / "de_core" / "cc" / path.relative_to(code)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
                count += 1
    # Bazel reads BUILD.bazel and ignores a file BUILD beside it, which upstream may add one day.
    shutil.copy(HERE / "overlay" / "BUILD.bazel", package / "BUILD.bazel")
    server.write_text(changed, "utf-8")
    if LABEL not in labels_in(server.read_text("utf-8")):
        raise OverlayError(f"the label {LABEL} is missing from {LIST} of {server}")
    return count


def check_version(tree: pathlib.Path, wanted: str) -> None:
    """Checks that the tree is checked out at the tested release.

    Raises:
        OverlayError: It is another commit, or git cannot tell.
    """
    head, tag = _commit(tree, "HEAD"), _commit(tree, f"refs/tags/{wanted}")
    if not head or head != tag:
        # The tree in a devel image of TensorFlow Serving has no git history. The commands of this
        # remedy work there too.
        git = f"git -C {shlex.quote(str(tree))}"
        remedy = (
            f"{git} init && {git} fetch --depth 1 {UPSTREAM} refs/tags/{wanted}:refs/tags/{wanted} "
            f"&& {git} checkout --force --detach refs/tags/{wanted}"
        )
        raise OverlayError(
            f"the tree must be at TensorFlow Serving {wanted}; a devel image may hold others than "
            f"its tag says. Run: {remedy}; or pass --any-version. "
            f"Received: HEAD {head or 'unknown'}, {wanted} {tag or 'unknown'}"
        )


def main() -> None:
    """Applies the overlay and prints what it did."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=pathlib.Path, help="the root of TensorFlow Serving's sources")
    parser.add_argument(
        "--sources",
        type=pathlib.Path,
        default=HERE.parent,
        help="the folder that contains de_core (default: this script's checkout)",
    )
    parser.add_argument(
        "--any-version", action="store_true", help="do not check the release of the tree"
    )
    args = parser.parse_args()
    try:
        if not args.any_version:
            check_version(args.tree, versions()["TENSORFLOW_SERVING"])
        count = apply(args.tree, args.sources)
    except OverlayError as error:
        sys.exit(f"apply_overlay: {error}")
    print(f"{count} source files in {args.tree / PACKAGE}; {LABEL} is in {LIST} of {SERVER}")


def _value_of(text: str) -> ast.expr:
    try:
        statements = ast.parse(text).body
    except SyntaxError as error:
        raise OverlayError(
            f"{SERVER} must be made of plain statements. Received: {error}"
        ) from None
    found = [
        node.value
        for node in statements
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == LIST for target in node.targets)
    ]
    if len(found) != 1:
        raise OverlayError(
            f"{SERVER} must assign {LIST} once; upstream has moved: see its newest custom_op.md. "
            f"Received: {len(found)} assignments"
        )
    return found[0]


def _commit(tree: pathlib.Path, name: str) -> str:
    # Name the tree's own repository. Without it, git would use a repository in a parent folder.
    command = ["git", f"--git-dir={tree / '.git'}", "rev-parse", "--verify", "--quiet"]
    command += [f"{name}^{{commit}}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
