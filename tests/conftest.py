"""Environment settings before TensorFlow is imported, and fixtures for several folders."""

import os
import textwrap
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["tests.support.costs", "tests.support.applies", "tests.support.choices"]

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Continuous integration always draws the same examples; other runs draw new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Forks processes that have imported `de_core`: see `Forks`."""
    from tests.support.forks import Forks

    made = Forks(tmp_path_factory.mktemp("forks"))
    yield made
    made.stop()


@pytest.fixture(scope="session")
def in_shims(forks, tmp_path_factory):
    """Calls a module's function in another process whose system `shims.c` replaces."""
    from tests.support.shims import compile_shims

    library = compile_shims(tmp_path_factory.mktemp("shims"))

    def call(function, *arguments, **variables):
        environment = {**os.environ, "LD_PRELOAD": library, **variables}
        done = forks.call(function, *map(str, arguments), env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture(scope="session")
def run_python(forks):
    """Runs Python source in another process and returns its output."""

    def run(source: str, *arguments: object) -> str:
        done = forks.source(textwrap.dedent(source), *arguments)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run


@pytest.fixture(scope="session")
def ratings():
    """Users, items (int64 [512]) and likes (float32 [512, 1])."""
    import numpy as np

    rng = np.random.default_rng(0)
    users = rng.integers(0, 40, size=512) + 2**40
    items = rng.integers(0, 30, size=512)
    pleases = (users + items) % 3 == 0
    return users.astype(np.int64), items.astype(np.int64), pleases.astype(np.float32)[:, None]


@pytest.fixture
def ratings_model():
    """Creates compiled models on `ratings`'s users, all with the same initial weights."""
    import keras

    import de_core as de

    def make():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input([], dtype="int64"),
                de.layers.Embedding(4, initializer="normal", name="users"),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
        return model

    return make
