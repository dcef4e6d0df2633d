"""The engine compiles for every 64-bit processor, though most test machines are x86-64.

This test finds code that compiles only on x86-64. `make engine-test PRESET=engine-arm64` runs the
engine's tests for ARM, under QEMU.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving.tools import needs

COMPILER = "aarch64-linux-gnu-g++"
OPTIONS = ("-std=c++17", "-O0", "-fsyntax-only", "-Wall", "-Wextra", "-Werror")


@pytest.mark.slow
@needs(COMPILER)
def test_the_engine_compiles_for_64_bit_arm(root: Path):
    def errors_of(source: Path) -> str:
        command = [COMPILER, *OPTIONS, f"-I{root}", str(source)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300).stderr

    sources = sorted((root / "de_core/cc/engine").rglob("*.cc"))
    assert len(sources) > 30
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        assert "\n".join(filter(None, threads.map(errors_of, sources))) == ""
