"""Every source compiles under TensorFlow Serving's own flags, by g++ and by clang."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving.tools import ROOT, run

# Upstream's .bazelrc: the old string ABI, these instruction sets. The wheel's libraries have the
# new ABI, so no link is possible, and nothing but the front end runs.
UPSTREAM = ["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-mavx", "-msse4.2", "-fsyntax-only"]
SOURCES = sorted(p for f in ("engine", "kernels", "ops") for p in ROOT.glob(f"de_core/cc/{f}/*.cc"))


def headers_of_tensorflow():
    import tensorflow as tf

    return Path(tf.sysconfig.get_include())


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_sources_compile_under_upstreams_flags(compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler} installed")
    flags = [*UPSTREAM, "-DEIGEN_MAX_ALIGN_BYTES=64", "-I", ROOT]
    flags += ["-isystem", headers_of_tensorflow()]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda source: run([compiler, *flags, source]), SOURCES))
