"""Tests the names and types that users of the library see."""

import importlib
import pkgutil
import sys
from pathlib import Path

import keras
import pytest

import de_core as de
from tests.support.commands import run

#: A user's file, with a mistake in each marked line and the code of mypy's error for it.
USERS_FILE = """
import tensorflow as tf

import de_core as de

users = de.Variable(dim=16, name="users")
wrong_dim = de.Variable(dim="16")  # arg-type
layer = de.layers.Embedding(8, combiner="mean")
wrong_layer = de.layers.Embedding(dim="8")  # arg-type
wrong_combiner = de.layers.Embedding(8, combiner="average")  # arg-type
pooled = de.embedding_lookup_sparse(users, tf.sparse.from_dense([[1]]), None, combiner="sum")
of_wrong_combiner = de.embedding_lookup_sparse(users, 1, None, combiner="min")  # arg-type
rows = de.embedding_lookup(users, [1])
no_ids = de.embedding_lookup(users)  # call-arg
no_values = users.upsert([1])  # call-arg
used: int = users.memory_usage()["total"]
wrong_use: int = users.memory_usage()  # assignment
version: int = de.export(tf.Module(), "models")  # assignment
manager = de.checkpoint.Manager(users, "checkpoints", max_to_keep="3")  # arg-type
saved: dict[str, int] = manager.save()  # assignment
de.EvictionLRU(max_rows="1e6")  # arg-type
users.restrict(num_reserved=5)
users.restrict(num_reserved="5")  # arg-type
bounded = de.Variable(restrict_policy="time")  # arg-type
served = de.export(tf.Module(), "models", oov={"users": [0.0, 1.0]}, keep=de.KeepRows())
wrong_oov = de.export(tf.Module(), "models", oov="zero")  # arg-type
"""


def test_dir_shows_public_names_only():
    shown = [name for name in dir(de) if not name.startswith("__")]
    assert set(de.__all__) <= set(shown)
    assert [name for name in shown if name.startswith("_")] == []
    assert {"annotations", "base", "tables", "variable", "lookup"}.isdisjoint(shown)
    for name in shown:
        assert getattr(de, name) is not None


def test_no_module_shares_its_name_with_something_else_in_its_package():
    """Such a function once hid a module: `import de_core.publish as p` bound the function."""
    shadowed = []
    for found in pkgutil.walk_packages(de.__path__, "de_core."):
        if any(part.startswith("_") for part in found.name.split(".")) or "keras2" in found.name:
            continue
        module = importlib.import_module(found.name)
        package, _, name = found.name.rpartition(".")
        if getattr(sys.modules[package], name) is not module:
            shadowed.append(found.name)
    assert shadowed == []


def test_registered_names_do_not_depend_on_modules():
    mine = {
        name: kind
        for name, kind in keras.saving.get_custom_objects().items()
        if kind.__module__.startswith("de_core")
    }
    # Registered names begin with a package's name. The layers of the reference API are registered
    # as `de_core.keras`.
    assert {name.partition(">")[0] for name in mine} == {"de_core", "de_core.keras"}


@pytest.mark.slow
def test_mypy_finds_the_mistakes_in_a_users_file(tmp_path: Path, root: Path):
    (tmp_path / "user.py").write_text(USERS_FILE)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "user.py"]
    settings = (root / "pyproject.toml").read_text().partition("[tool.mypy]")[2]
    settings = settings.partition("[tool.pytest")[0].replace('packages = ["de_core", "server"]', "")
    (tmp_path / "pyproject.toml").write_text(f"[tool.mypy]{settings}")
    done = run(*command, cwd=tmp_path, MYPYPATH=str(root))
    found = {
        (int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
        for line in done.stdout.splitlines()
        if line.startswith("user.py:") and " error: " in line
    }
    planted = {
        (number, line.rpartition("# ")[2])
        for number, line in enumerate(USERS_FILE.splitlines(), 1)
        if "  # " in line
    }
    assert found == planted, done.stdout + done.stderr
