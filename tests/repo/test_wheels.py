"""The wheels in fresh environments, from an empty folder: train, export, serve, ask."""

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.fresh_environment import FreshEnvironment, run

pytestmark = pytest.mark.slow

#: Each TensorFlow, and a Python that it supports. Together they cover all Pythons.
MATRIX = (("2.19", "3.10"), ("2.20", "3.12"), ("2.21", "3.11"), ("2.21", "3.13"))
MINORS = ("2.19", "2.20", "2.21")
FIRST_STEP = """
import keras, numpy as np, de_core as de
model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(8)])
model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
model.train_on_batch(np.arange(32), np.ones([32, 8]))
"""


@pytest.fixture(scope="module")
def wheels(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheels that scripts/build_wheels.py makes."""
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, root / "scripts/build_wheels.py", "--out", folder, cwd=root)
    return folder


def test_one_wheel_holds_a_library_for_each_tensorflow(wheels: Path):
    gateway, library = sorted(wheels.glob("*.whl"), reverse=True)
    assert gateway.name == "de_core_gateway-0.1.0-py3-none-any.whl"
    assert library.name == "de_core-0.1.0-py3-none-manylinux_2_27_x86_64.whl"
    assert library.stat().st_size < 15_000_000
    with zipfile.ZipFile(library) as archive:
        names = archive.namelist()
        metadata = archive.read("de_core-0.1.0.dist-info/METADATA").decode()
    assert [n for n in names if n.endswith(".so")] == [
        f"de_core/_ops/{minor}/{name}"
        for minor in MINORS
        for name in ("_de_ops.so", "_de_tfra_ops.so")
    ]
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert [each for each in required if "extra" not in each] == ["numpy>=1.26", "rich>=13"]
    assert "Requires-Python: <3.14,>=3.10" in metadata


def test_the_checksums_are_those_of_the_wheels_and_sources(wheels: Path):
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=wheels)
    named = {line.split()[1] for line in (wheels / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in wheels.iterdir()} - {"SHA256SUMS"}
    assert {"de_core-0.1.0.tar.gz", "de_core_gateway-0.1.0.tar.gz"} <= named


@pytest.mark.parametrize(("minor", "version"), MATRIX)
def test_the_readme_runs_with_the_wheels_in_an_empty_folder(
    wheels: Path, tmp_path: Path, minor: str, version: str
):
    environment = FreshEnvironment(tmp_path, version)
    environment.install(f"tensorflow-cpu=={minor}.*")
    before = environment.tensorflows()
    environment.install("--only-binary=de-core", "--find-links", wheels, "de-core==0.1.0")
    run(environment.python, "-c", FIRST_STEP, cwd=environment.empty)
    environment.install("--find-links", wheels, "de-core[server]==0.1.0")
    assert environment.tensorflows() == before
    assert not any(each.startswith("tensorflow==") for each in before)
    environment.train(environment.empty)
    environment.ask(environment.empty, environment.bin / "de-core", "serve")
