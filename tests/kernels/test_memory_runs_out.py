"""Kernels raise an error when memory runs out, and do not end the process."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.applies import program
from tests.support.commands import run

HERE = Path(__file__).parent


# The first is a sample: one kind of table, every second, fourth, eighth … allocation.
@pytest.mark.parametrize(
    ("how", "verbs", "failures"),
    [("sample", 20, 100), pytest.param("sweep", 150, 1000, marks=pytest.mark.slow)],
)
def test_every_allocation_of_a_kernel_may_fail(tmp_path, how, verbs, failures):
    compiler = program("c++", "g++")
    library = tmp_path / "alloc_failures.so"
    source = HERE / "alloc_failures.cc"
    built = run(compiler, "-shared", "-fPIC", "-std=c++17", source, "-o", library)
    assert built.returncode == 0, built.stderr
    command = [sys.executable, HERE / "memory_runs_out.py", library, tmp_path, how]
    done = run(*command, timeout=3600, LD_PRELOAD=str(library), TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    results = re.findall(r"^(.*): (\d+) injected, (\d+) bad$", done.stdout, re.MULTILINE)
    print(done.stdout)
    assert len(results) > verbs
    assert sum(int(injected) for _, injected, _ in results) > failures
    assert [each for each in results if each[2] != "0"] == [], done.stdout
