"""Training that is checkpointed and goes on in another process ends where it would have."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.integration import oracle, test_generic_optimizers, test_optimizer_tf1

pytest.importorskip("tf_keras")
v1 = tf.compat.v1.train
pytestmark = pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")
#: By TensorFlow 2's checkpoints.
RUNS = {
    "own of Keras": lambda: test_generic_optimizers.OwnNadam(0.01),
    "own legacy": lambda: test_generic_optimizers.OldAdam(0.01),
}
BY_KERAS_3 = {"own of Keras"}
#: By a Saver.
SESSIONS = {
    "adam": lambda: v1.AdamOptimizer(0.01),
    "ftrl": test_optimizer_tf1.OPTIMIZERS["ftrl"],
    "own": test_generic_optimizers.TF1["own"],
}


def train_part(folder, part):
    """Trains one half of each run; what the second ends at it writes beside the checkpoints."""
    data = list(oracle.batches(6))
    for name, make in RUNS.items():
        optimizer = de.DynamicEmbeddingOptimizer(make())
        shards = 2 if part == "first" else 3
        tables = oracle.Tables(optimizer, shards=shards, scales=name in BY_KERAS_3)
        if name in BY_KERAS_3:
            optimizer.build(tables.variables)
        checkpoint = tf.train.Checkpoint(dense=tables.dense, optimizer=optimizer, **tables.tables)
        path = f"{folder}/{name}".replace(" ", "_")
        if part == "first":
            tables.run(data[:3])
            checkpoint.write(path)
        else:
            status = checkpoint.read(path)
            tables.run(data[3:])
            status.expect_partial()
            np.savez(f"{path}.npz", *tables.finish())


def train_part_in_a_session(folder, part):
    """The same in sessions."""
    data = list(oracle.batches(6))
    for name, make in SESSIONS.items():
        tables = test_optimizer_tf1.Tables(make, shards=2 if part == "first" else 3)
        with tables.graph.as_default():
            saver = v1.Saver()
        path = f"{folder}/session_{name}"
        if part == "first":
            tables.run(data[:3])
            with tables.graph.as_default():
                saver.save(tables.session, path)
        else:
            with tables.graph.as_default():
                saver.restore(tables.session, path)
            tables.run(data[3:])
            np.savez(f"{path}.npz", *tables.finish())


PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
from tests.integration import test_resumed_runs
getattr(test_resumed_runs, sys.argv[1])(*sys.argv[2:])
"""


def assert_ends_like(dense, path):
    dense.run(list(oracle.batches(6)))
    with np.load(path) as saved:
        oracle.assert_same([saved[key] for key in saved.files], dense.finish())


def test_runs_go_on_from_a_checkpoint_of_tensorflow_2(run_python, tmp_path):
    for part in ("first", "second"):
        run_python(PROGRAM, "train_part", tmp_path, part)
    for name in RUNS:
        dense = oracle.Dense(RUNS[name](), scales=name in BY_KERAS_3)
        assert_ends_like(dense, f"{tmp_path}/{name}.npz".replace(" ", "_"))


def test_sessions_go_on_from_a_savers_checkpoint(run_python, tmp_path):
    for part in ("first", "second"):
        run_python(PROGRAM, "train_part_in_a_session", tmp_path, part)
    for name, make in SESSIONS.items():
        assert_ends_like(test_optimizer_tf1.Dense(make), f"{tmp_path}/session_{name}.npz")


def test_a_checkpoint_of_tensorflow_2_refuses_an_optimizer_of_tensorflow_1(tmp_path):
    optimizer = de.DynamicEmbeddingOptimizer(v1.AdamOptimizer())
    with pytest.raises(NotImplementedError, match=r"saved by a tf.compat.v1.train.Saver"):
        tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "checkpoint"))
