"""Runs the command, in this process or in another one, on files of a small table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core_cli.main import main

ROOT = Path(__file__).resolve().parents[2]
#: The program of the installed script `de-core`.
COMMAND = [sys.executable, "-m", "de_core_cli"]


@pytest.fixture(scope="session")
def command(forks):
    """Runs the command in another process, in a folder that is not the checkout."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return forks.module("de_core_cli", *arguments, cwd=Path("/"))

    return run


@pytest.fixture
def ran(capsys):
    """Runs the command in this process; checks its status, and returns what it printed."""

    def run(*arguments, status=0):
        assert main([*map(str, arguments)]) == status
        return capsys.readouterr()

    return run


@pytest.fixture
def refused(ran):
    """Runs the command, which must fail, and returns the reason that it printed."""
    return lambda *arguments: ran(*arguments, status=1).err


@pytest.fixture
def as_json(ran):
    """Runs the command with `--json`, and returns the object of each line."""

    def run(*arguments, status=0):
        printed = ran(*arguments, "--json", status=status).out
        return [json.loads(line) for line in printed.splitlines()]

    return run


@pytest.fixture
def table():
    """A table of 1000 users, with the slots of one step of SGD with momentum on user 3."""
    table = de.Variable(dim=2, name="users")
    table.upsert(np.arange(1000), np.arange(2000, dtype=np.float32).reshape(1000, 2))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.5, momentum=0.5))
    optimizer.apply([tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3], tf.int64))], [table])
    return table


@pytest.fixture
def files(table, tmp_path):
    """Two saves of the table. In between one row is added, one removed, one changed."""
    table.save_to_file_system(str(tmp_path), file_name_list=["a"])
    table.remove([7])
    table.upsert([8, 5000], [[0.25, 0.5], [1.0, 1.0]])
    table.save_to_file_system(str(tmp_path), file_name_list=["b"])
    return str(tmp_path / "a.de"), str(tmp_path / "b.de")


@pytest.fixture(scope="session")
def keras_files(tmp_path_factory):
    """A Keras model of 50 ids, and its files by suffix."""
    folder = tmp_path_factory.mktemp("keras")
    model = keras.Sequential(
        [
            keras.Input([], dtype="int64"),
            de.layers.Embedding(4, initializer="normal", name="emb"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    model.fit(np.arange(50), np.ones([50, 1]), verbose=0)
    model.save(folder / "m.keras")
    model.save_weights(folder / "m.weights.h5")
    return model, folder / "m.keras", folder / "m.weights.h5"
