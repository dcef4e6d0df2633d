"""Training that is checkpointed and goes on in another process ends where it would have."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.integration import (
    oracle,
    test_generic_optimizers,
    test_optimizer_keras2,
    test_optimizer_rules,
    test_optimizer_tf1,
)

tf_keras = pytest.importorskip("tf_keras")
v1 = tf.compat.v1.train
pytestmark = pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")


def of_tf_keras(make, of):
    return lambda: make(of, **({"jit_compile": False} if of is tf_keras.optimizers else {}))


#: By TensorFlow 2's checkpoints.
RUNS = {
    "keras 3 own": lambda: test_generic_optimizers.OwnNadam(0.01),
    "legacy own": lambda: test_generic_optimizers.OldAdam(0.01),
    "new own": lambda: test_generic_optimizers.NewAdam(0.01, jit_compile=False),
    **{f"keras 3 {name}": make for name, make in test_optimizer_rules.OPTIMIZERS.items()},
    **{
        f"{family} {name}": of_tf_keras(make, of)
        for family, of in {"new": tf_keras.optimizers, "legacy": tf_keras.optimizers.legacy}.items()
        for name, make in test_optimizer_keras2.BOTH.items()
    },
    "new adamw": lambda: tf_keras.optimizers.AdamW(0.01, weight_decay=0.1, jit_compile=False),
    "new lion": lambda: tf_keras.optimizers.Lion(0.01, jit_compile=False),
    "new ema": lambda: tf_keras.optimizers.Adam(0.01, use_ema=True, jit_compile=False),
    "keras 3 waiting": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "keras 3 ema": lambda: keras.optimizers.Adam(0.01, use_ema=True),
}
IN_SHORT = [
    "keras 3 own",
    "legacy own",
    "new own",
    "keras 3 waiting",
    "keras 3 ema",
    "new nadam",
    "new ema",
    "legacy nesterov",
]
#: By a Saver.
SESSIONS = {
    **test_optimizer_tf1.OPTIMIZERS,
    "own": test_generic_optimizers.TF1["own"],
}
SESSIONS_IN_SHORT = ["adam", "ftrl", "own"]


def mode_of(name):
    # Which tf_keras cannot do in a function: its count of steps is one of traces.
    return "eager" if name == "new nadam" or sum(map(ord, name)) % 2 else "function"


def train_part(folder, part, *names):
    """Trains one half of each run; what the second ends at it writes beside the checkpoints."""
    data = list(oracle.batches(6))
    for name in names:
        optimizer = de.DynamicEmbeddingOptimizer(RUNS[name]())
        shards = 2 if part == "first" else 3
        of_keras_3 = name.startswith("keras 3")
        tables = oracle.Tables(optimizer, mode_of(name), shards, scales=of_keras_3)
        if of_keras_3:
            optimizer.build(tables.variables)  # those of tf_keras need not be
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


def train_part_in_a_session(folder, part, *names):
    """The same in sessions."""
    data = list(oracle.batches(6))
    for name in names:
        shards = 2 if part == "first" else 3
        tables = test_optimizer_tf1.Tables(SESSIONS[name], shards)
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


def short_and_long(short, every):
    rest = [name for name in every if name not in short]
    return pytest.mark.parametrize(
        "names",
        [pytest.param(short, id="short"), pytest.param(rest, id="rest", marks=pytest.mark.slow)],
    )


@short_and_long(IN_SHORT, RUNS)
def test_runs_go_on_from_a_checkpoint_of_tensorflow_2(run_python, tmp_path, names):
    for part in ("first", "second"):
        run_python(PROGRAM, "train_part", tmp_path, part, *names)
    for name in names:
        by_row = name == "keras 3 lamb"
        dense = oracle.Dense(RUNS[name](), by_row, scales=name.startswith("keras 3"))
        assert_ends_like(dense, f"{tmp_path}/{name}.npz".replace(" ", "_"))


@short_and_long(SESSIONS_IN_SHORT, SESSIONS)
def test_sessions_go_on_from_a_savers_checkpoint(run_python, tmp_path, names):
    for part in ("first", "second"):
        run_python(PROGRAM, "train_part_in_a_session", tmp_path, part, *names)
    for name in names:
        dense = test_optimizer_tf1.Dense(SESSIONS[name])
        assert_ends_like(dense, f"{tmp_path}/session_{name}.npz")


def test_a_checkpoint_of_tensorflow_2_refuses_an_optimizer_of_tensorflow_1(tmp_path):
    optimizer = de.DynamicEmbeddingOptimizer(v1.AdamOptimizer())
    with pytest.raises(NotImplementedError, match=r"saved by a tf.compat.v1.train.Saver"):
        tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "checkpoint"))
