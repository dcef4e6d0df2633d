"""Every source compiles with TensorFlow Serving's own flags, with g++ and with clang."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving.tools import ROOT, needs, run

# Upstream's .bazelrc: the old string ABI and these instruction sets. The wheel's libraries have the
# new ABI, so nothing can be linked, and only the compiler's front end runs.
UPSTREAM = ["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-mavx", "-msse4.2"]
OF_TENSORFLOW = re.compile(r'^#include "((?:tensorflow|absl|unsupported|xla|tsl)/[^"]+)"', re.M)
FIND = "import importlib.util as u; print(*u.find_spec('tensorflow').submodule_search_locations)"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "compiler", [pytest.param(name, marks=needs(name)) for name in ("g++", "clang++")]
    ),
]


def sources(*folders):
    found = [path for folder in folders for path in ROOT.glob(f"de_core/cc/{folder}/**/*.cc")]
    assert found
    return sorted(found)


def check(compiler, flags, files):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda path: run([compiler, *flags, "-fsyntax-only", path]), files))


def test_the_engine_compiles(compiler):
    check(compiler, [*UPSTREAM, "-I", ROOT], sources("engine"))


@pytest.mark.parametrize("whose", ["installed", "serving"])
def test_kernels_and_ops_compile_against_the_headers_of(compiler, whose, request, tmp_path):
    python = request.getfixturevalue("serving_python") if whose == "serving" else sys.executable
    headers = f"{run([python, '-c', FIND]).strip()}/include"
    flags = [*UPSTREAM, "-DEIGEN_MAX_ALIGN_BYTES=64", "-I", ROOT, "-isystem", headers]
    files = sources("kernels", "ops", "tfra")
    # Parsing TensorFlow's headers takes seconds, so they are parsed once. The library's own build
    # checks that every file includes what it uses.
    folders = ("kernels", "ops", "tfra")
    beside = [path for each in folders for path in ROOT.glob(f"de_core/cc/{each}/**/*.[ch]*")]
    names = {name for path in beside for name in OF_TENSORFLOW.findall(path.read_text("utf-8"))}
    header = tmp_path / "tensorflow.h"
    header.write_text("".join(f'#include "{name}"\n' for name in sorted(names)))
    compiled = header.with_suffix(".h.gch" if compiler == "g++" else ".h.pch")
    run([compiler, *flags, "-x", "c++-header", header, "-o", compiled])
    use = ["-include", header] if compiler == "g++" else ["-include-pch", compiled]
    check(compiler, [*flags, *use, "-Winvalid-pch", "-Werror"], files)
