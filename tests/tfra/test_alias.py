"""`python -m de_core.tfra` runs programs that import `tensorflow_recommenders_addons`."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from de_core import tfra
from de_core.tfra import alias
from de_core.tfra.names import Namespace
from tests.support import commands

ROOT = Path(__file__).resolve().parents[2]
#: Imports as programs write them, each with the expression that must be ours.
IMPORTS = {
    "import tensorflow_recommenders_addons": "tensorflow_recommenders_addons",
    "import tensorflow_recommenders_addons as x": "x",
    "from tensorflow_recommenders_addons import dynamic_embedding as x": "x",
    "import tensorflow_recommenders_addons.dynamic_embedding as x": "x",
    "from tensorflow_recommenders_addons.dynamic_embedding.keras import layers as x": "x",
    "import tensorflow_recommenders_addons.dynamic_embedding.shadow_ops as x": "x",
    "from tensorflow_recommenders_addons.dynamic_embedding.python.ops import "
    "dynamic_embedding_ops as x": "x",
    "from tensorflow_recommenders_addons.dynamic_embedding import HkvHashTable as x": "x",
    "from tensorflow_recommenders_addons.dynamic_embedding.python.ops.shadow_embedding_ops import "
    "HvdVariable as x": "x",
    "from tensorflow_recommenders_addons.dynamic_embedding.python.ops.dynamic_embedding_variable "
    "import Variable as x": "x",
}
OURS = {
    "tensorflow_recommenders_addons": tfra,
    "tensorflow_recommenders_addons.dynamic_embedding": tfra.dynamic_embedding,
    "tensorflow_recommenders_addons.dynamic_embedding.keras.layers": (
        tfra.dynamic_embedding.keras.layers
    ),
    "tensorflow_recommenders_addons.dynamic_embedding.python.ops.shadow_embedding_ops": (
        tfra.dynamic_embedding.shadow_ops
    ),
}


@pytest.fixture
def installed():
    before = set(sys.modules)
    alias.install()
    yield
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, alias._Alias)]
    for name in set(sys.modules) - before:
        if name.startswith(alias.NAME):
            del sys.modules[name]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("statement", IMPORTS)
def test_every_way_to_import_finds_ours(statement):
    names: dict = {}
    exec(statement, names)
    found = names[IMPORTS[statement]]
    owner = found.__name__ if isinstance(found, ModuleType) else found.__module__
    assert owner.startswith("de_core.tfra") or isinstance(found, Namespace)


@pytest.mark.usefixtures("installed")
def test_the_modules_are_the_same_objects_and_keep_their_own_specs():
    specs = {name: module.__spec__ for name, module in OURS.items()}
    for name, module in OURS.items():
        assert importlib.import_module(name) is module
        assert module.__spec__ is specs[name]
    assert tfra.__name__ == "de_core.tfra"


@pytest.mark.usefixtures("installed")
def test_a_module_that_is_not_public_is_refused_with_the_remedy():
    name = f"{alias.NAME}.dynamic_embedding.core"
    with pytest.raises(ModuleNotFoundError, match=r"public module.*Import the names"):
        importlib.import_module(name)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'never_was'$"):
        importlib.import_module("never_was")


def test_without_the_runner_nothing_is_installed():
    assert not any(isinstance(each, alias._Alias) for each in sys.meta_path)


PROGRAM = """
import os, sys
import beside
import tensorflow_recommenders_addons as tfra
import tensorflow as tf

assert __name__ == "__main__"
assert tfra.dynamic_embedding.get_variable("v", dim=3).dim == beside.DIM
print(sys.argv[1:], tf.keras.optimizers.Adam.__module__[:2], tfra.__name__)
"""


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TF_USE_LEGACY_KERAS", raising=False)
        variables = {"PYTHONPATH": str(ROOT), **environment}
        return commands.run(
            sys.executable, "-m", "de_core.tfra", *arguments, cwd=folder, **variables
        )


@pytest.fixture
def program(tmp_path):
    """The path of a program with a module beside it, relative to `tmp_path`."""
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/beside.py").write_text("DIM = 3\n")
    (tmp_path / "programs/program.py").write_text(PROGRAM)
    return "programs/program.py"


def test_a_program_runs_unchanged_with_its_arguments(forks, program, tmp_path):
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    arguments = ("de_core.tfra", program, "--mode", "train")
    done = forks.module(*arguments, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['--mode', 'train'] tf de_core.tfra"


@pytest.mark.slow
def test_a_program_starts_again_with_tf_keras(program, tmp_path):
    done = run(tmp_path, program, "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['x'] tf de_core.tfra"


def test_a_wrong_command_line_says_how_to_call_the_runner(forks, tmp_path):
    done = forks.module("de_core.tfra", "missing.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "usage: python -m de_core.tfra" in done.stderr
    assert "No such program: 'missing.py'." in done.stderr


@pytest.mark.slow
def test_keras_3_and_modules_may_be_chosen(tmp_path):
    (tmp_path / "beside.py").write_text("DIM = 3\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path, "-m", "program", "x", TF_USE_LEGACY_KERAS="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['x'] ke de_core.tfra"
    assert "usage:" in run(tmp_path, "--help").stdout
