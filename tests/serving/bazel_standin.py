"""A small stand-in for TensorFlow Serving's source tree, which an old Bazel can build offline.

Its `@org_tensorflow` wraps the headers and libraries of the installed wheel. Its model server is
the loader program of `serving_ops/loader`, linked only with SUPPORTED_TENSORFLOW_OPS.
"""

import os
import shutil
import subprocess
from pathlib import Path

import apply_overlay
from versions import versions

from tests.serving.tools import ROOT, run

RULES = Path("/usr/share/bazel")  # from Debian's bazel-rules-* packages
SERVER_TARGET = "//tensorflow_serving/model_servers:tensorflow_model_server"
SERVER = """
SUPPORTED_TENSORFLOW_OPS = [
]

cc_binary(
    name = "tensorflow_model_server",
    srcs = ["model_versions.cc"],
    linkopts = ["-lpthread", "-Wl,-rpath,{libraries}"],
    deps = ["@org_tensorflow//tensorflow/core:framework"] + SUPPORTED_TENSORFLOW_OPS,
)
"""
TENSORFLOW = """
cc_library(
    name = "wheel",
    srcs = glob(["lib/*.so.2"]),
    hdrs = glob(["include/**"]),
    defines = ["EIGEN_MAX_ALIGN_BYTES=64", "_GLIBCXX_USE_CXX11_ABI=1"],
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""
CORE = """
package(default_visibility = ["//visibility:public"])
cc_library(name = "framework", deps = ["//:wheel"])
cc_library(name = "lib", deps = ["//:wheel"])
"""
# Two of TensorFlow Serving's groups of options, without optimization, because only linking matters.
OPTIONS = """
startup --batch --output_user_root={outputs}
build --cxxopt=-std=c++17 --host_cxxopt=-std=c++17
build:release --copt=-mavx --copt=-msse4.2
# The wheel has 14,000 headers: a sandbox would link each of them for every compiler.
build --spawn_strategy=local --noshow_progress
"""
VISIBILITY = """
package_group(name = "internal", packages = ["//tensorflow_serving/..."])
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def make_tree(root, tensorflow):
    """Creates the tree, a git repository at the release without the overlay, and returns it."""
    tree = root / "serving"
    write(tree / "WORKSPACE", "")
    write(tree / "tensorflow_serving" / "BUILD", VISIBILITY)
    write(tree / apply_overlay.SERVER, SERVER.format(libraries=tensorflow))
    program = ROOT / "serving_ops" / "loader" / "model_versions.cc"
    shutil.copy(program, (tree / apply_overlay.SERVER).parent / program.name)
    repository = root / "org_tensorflow"
    write(repository / "WORKSPACE", "")
    write(repository / "BUILD", TENSORFLOW)
    write(repository / "tensorflow" / "core" / "BUILD", CORE)
    (repository / "include").symlink_to(tensorflow / "include")
    for library in tensorflow.glob("libtensorflow_*.so.2"):
        (repository / "lib").mkdir(exist_ok=True)
        (repository / "lib" / library.name).symlink_to(library)
    # Debian's rules require a feature that Debian's Bazel lacks.
    rules = root / "rules_cc"
    shutil.copytree(RULES / "rules" / "cc", rules)
    for path in (rules / "cc" / "private" / "rules_impl").glob("*.bzl"):
        text = path.read_text("utf-8")
        text = text.replace(', "use_cpp_toolchain"', "").replace("use_cpp_toolchain()", "[]")
        path.write_text(text, "utf-8")
    overrides = {
        "org_tensorflow": repository,
        "rules_cc": rules,
        "rules_java": RULES / "rules" / "java",
        "rules_proto": RULES / "rules" / "proto",
        "platforms": RULES / "platforms",
        "bazel_skylib": RULES / "tools" / "skylib",
    }
    options = OPTIONS.format(outputs=root / "outputs")
    for name, path in overrides.items():
        options += f"build --override_repository={name}={path}\n"
    write(tree / ".bazelrc", options)
    git = ["git", "-C", tree, "-c", "user.name=t", "-c", "user.email=t@example.com"]
    release = versions()["TENSORFLOW_SERVING"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "-qm", "x"], ["tag", release]):
        run([*git, *command])
    return tree


def build(tree, output, scripts):
    """Builds the model server in a folder of scripts; returns the exit code and the output."""
    command = [scripts / "build_model_server.sh", "--tree", tree, "--output", output]
    command += ["--jobs", len(os.sched_getaffinity(0)), "--memory-mb", 4096]
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3000, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout
