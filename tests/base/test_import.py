import sys

import pytest

from tests.support.commands import run


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_keras_backend_is_refused_with_the_fix(backend):
    done = run(sys.executable, "-c", "import de_core", KERAS_BACKEND=backend)
    assert done.returncode != 0
    assert f"backend='{backend}'. Run: export KERAS_BACKEND=tensorflow" in done.stderr


IMPORT = """
import tensorflow as tf
before = dir(tf), dir(tf.keras)
import de_core
assert (dir(tf), dir(tf.keras)) == before
assert tf.executing_eagerly()
print(de_core.__version__, sorted(de_core.__all__))
"""


def test_importing_registers_nothing_but_the_ops_and_their_gradient():
    done = run(sys.executable, "-c", IMPORT)
    assert done.returncode == 0, done.stderr
    assert "embedding_lookup" in done.stdout, done.stderr
