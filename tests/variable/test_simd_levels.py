"""Tables at each SIMD level that the processor has. The environment variable DE_SIMD chooses it."""

import os
from pathlib import Path

import pytest

from tests.support.applies import applies_if

#: The processor's flags that each level needs, as in `simd_level.cc`.
FLAGS = {
    "scalar": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512bw", "avx512dq", "avx512vl", "bmi1", "bmi2", "avx512_vbmi2"},
}
PROCESSOR = set(Path("/proc/cpuinfo").read_text("utf-8").split())
LEVELS = [
    pytest.param(level, marks=applies_if(flags <= PROCESSOR, f"a processor with {level}"))
    for level, flags in FLAGS.items()
]
# These tests compare tables with Python dicts.
ORACLES = [
    "tests/variable/test_state_machine.py",
    "tests/tables/test_policies_against_dicts.py",
]
MAKE = "import de_core as de; print(int(de.Variable(dim=1).size()))"
DIGEST = """
import hashlib, numpy as np, tensorflow as tf, de_core as de
rng, digest = np.random.default_rng(0), hashlib.sha256()
for dtype in (tf.float32, tf.float16, tf.float64):
    for dim in (1, 8, 31, 64):
        table = de.Variable(dim=dim, value_dtype=dtype, initializer="normal", name="t")
        for _ in range(5):
            keys = rng.integers(0, 3000, 1000)
            digest.update(table.lookup(keys).numpy().tobytes())
            rows = rng.normal(size=[1000, dim]).astype(dtype.as_numpy_dtype)
            table.upsert(keys, rows)
            table.remove(keys[:50])
        digest.update(table.lookup(np.arange(3000)).numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.fixture
def run(forks, monkeypatch):
    """Runs source at a SIMD level in another process."""

    def run(level, source):
        monkeypatch.setenv("DE_SIMD", level)
        return forks.source(source)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("level", LEVELS)
def test_tables_agree_with_dicts_at_every_level(forks, monkeypatch, level, oracle):
    monkeypatch.setenv("DE_SIMD", level)
    done = forks.module("pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", oracle)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.fixture(scope="module")
def scalar_digest(forks):
    return forks.source(DIGEST, env={**os.environ, "DE_SIMD": "scalar"}).stdout


@pytest.mark.parametrize("level", LEVELS[1:])
def test_every_level_reads_writes_and_initializes_the_same_rows(run, level, scalar_digest):
    done = run(level, DIGEST)
    assert done.returncode == 0, done.stderr
    assert done.stdout == scalar_digest


@pytest.mark.parametrize(
    "name", ["mmx", *(pytest.param(name, marks=pytest.mark.slow) for name in ("AVX2", "avx5123"))]
)
def test_another_name_is_an_error(run, name):
    done = run(name, MAKE)
    assert done.returncode != 0
    assert "DE_SIMD must be scalar, avx2 or avx512" in done.stderr
    assert f"Received: DE_SIMD={name}, while the processor's best level is" in done.stderr
