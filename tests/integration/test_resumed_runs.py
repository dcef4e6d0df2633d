"""Training that is checkpointed and continued in another process matches uninterrupted training.

Covers every optimizer in every mode, with another number of shards after the restart.
"""

import functools
import json
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de
from tests.optimizers import test_generic_optimizers
from tests.optimizers import test_keras2 as test_optimizer_keras2
from tests.optimizers import test_rules as test_optimizer_rules
from tests.optimizers import test_tf1 as test_optimizer_tf1
from tests.optimizers.test_steps import own
from tests.support import oracle

v1 = tf.compat.v1.train
pytestmark = pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")


def of_tf_keras(make, of):
    return lambda: make(of, **({"jit_compile": False} if of is tf_keras.optimizers else {}))


KERAS_3 = {
    "keras 3 own": lambda: own(keras.optimizers.Nadam)(0.01),
    **{f"keras 3 {name}": make for name, make in test_optimizer_rules.OPTIMIZERS.items()},
    "keras 3 waiting": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "keras 3 ema": lambda: keras.optimizers.Adam(0.01, use_ema=True),
}
TF_KERAS = {
    "legacy own": lambda: own(tf_keras.optimizers.legacy.Adam)(0.01),
    "new own": lambda: own(tf_keras.optimizers.Adam)(0.01, jit_compile=False),
    **{
        f"{family} {name}": of_tf_keras(make, of)
        for family, of in {"new": tf_keras.optimizers, "legacy": tf_keras.optimizers.legacy}.items()
        for name, make in test_optimizer_keras2.BOTH.items()
    },
    "new adamw": lambda: tf_keras.optimizers.AdamW(0.01, weight_decay=0.1, jit_compile=False),
    "new lion": lambda: tf_keras.optimizers.Lion(0.01, jit_compile=False),
    "new ema": lambda: tf_keras.optimizers.Adam(0.01, use_ema=True, jit_compile=False),
}
TF1 = {**test_optimizer_tf1.OPTIMIZERS, "own": test_generic_optimizers.TF1["own"]}
SESSIONS = ("session", "monitored session")
# The new Nadam of tf_keras counts its steps in Python, so in a function it counts only traces.
NOT_IN_FUNCTIONS = ("new nadam",)


def cases(makes, modes):
    return [
        (name, mode)
        for name in makes
        for mode in modes
        if "eager" in mode or name not in NOT_IN_FUNCTIONS
    ]


#: The cases that one process with one Keras runs. Session modes work with either Keras.
EVERY = {
    "keras 3": cases(KERAS_3, ("eager", "function")),
    "keras 3 fits": cases(KERAS_3, oracle.FITS),
    "tf_keras": cases(TF_KERAS, ("eager", "function")),
    "tf_keras fits": cases(TF_KERAS, oracle.FITS),
    "sessions": cases(TF1, SESSIONS),
}
IN_SHORT = [
    ("keras 3 waiting", "function"),
    ("keras 3 ema", "fit by threes"),
    ("keras 3 nadam", "function"),
    ("adagrad", "monitored session"),
]


def train_part(folder, part):
    """Trains one half of each case in `cases.json`; the second half writes the result."""
    warnings.simplefilter("ignore")
    cases = json.loads((Path(folder) / "cases.json").read_text())
    for number, (name, mode) in enumerate(cases):
        train = train_in_session if mode in SESSIONS else train_eagerly
        train(f"{folder}/{number}", part, name, mode)


def halves(part):
    """Returns the data and the number of shards of one half."""
    data = list(oracle.batches(6))
    return (data[:3], 2) if part == "first" else (data[3:], 3)


def train_eagerly(path, part, name, mode):
    data, shards = halves(part)
    of_keras_3 = name in KERAS_3
    optimizer = de.DynamicEmbeddingOptimizer({**KERAS_3, **TF_KERAS}[name]())
    tables = oracle.Tables(optimizer, mode, shards, scales=of_keras_3)
    if of_keras_3:
        optimizer.build(tables.variables)  # slots of tf_keras may be created later
    trained = {"model": tables.model} if tables.model else {"dense": tables.dense, **tables.tables}
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, **trained)
    if part == "first":
        tables.run(data)
        checkpoint.write(path)
    else:
        status = checkpoint.read(path)
        tables.run(data)
        status.expect_partial()
        np.savez(f"{path}.npz", *tables.finish())


def train_in_session(path, part, name, mode):
    data, shards = halves(part)
    open_session = tf.compat.v1.Session
    if mode == "monitored session":
        open_session = functools.partial(
            v1.MonitoredTrainingSession, checkpoint_dir=path, log_step_count_steps=None
        )
    tables = test_optimizer_tf1.Tables(TF1[name], shards, open_session, part == "first")
    with tables.graph.as_default():
        if mode == "session" and part == "second":
            tables.saver.restore(tables.session, path)
        tables.run(data)
        if part == "second":
            np.savez(f"{path}.npz", *tables.finish())
        elif mode == "session":
            tables.saver.save(tables.session, path)
        tables.session.close()  # a monitored session saves here


@functools.cache
def dense_rows(name, fits):
    """Returns the result of the same training on dense variables.

    `fit` replaces rows by their moving averages at the end of each call. All other modes give equal
    results.
    """
    if name in TF1:
        dense = test_optimizer_tf1.Dense(TF1[name])
    else:
        by_row = name == "keras 3 lamb"
        dense = oracle.Dense(
            {**KERAS_3, **TF_KERAS}[name](), by_row, scales=name.startswith("keras 3")
        )
    data = list(oracle.batches(6))
    for half in (data[:3], data[3:]):
        dense.run(half)
        if fits and getattr(dense.optimizer, "use_ema", False):
            dense.optimizer.finalize_variable_values(dense.variables)
    return dense.finish()


GROUPS = [
    pytest.param("keras 3", IN_SHORT, id="keras 3 in short"),
    *(pytest.param(*each, id=each[0], marks=pytest.mark.slow) for each in EVERY.items()),
]


@pytest.mark.parametrize(("group", "cases"), GROUPS)
def test_runs_go_on_in_another_process(forks, monkeypatch, tmp_path, group, cases):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0" if group.startswith("keras 3") else "1")
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for part in ("first", "second"):
        done = forks.call(train_part, str(tmp_path), part)
        assert done.returncode == 0, done.stderr[-4000:]
    wrong = {}
    for number, (name, mode) in enumerate(cases):
        with np.load(tmp_path / f"{number}.npz") as saved:
            try:
                rows = [saved[key] for key in saved.files]
                oracle.assert_same(rows, dense_rows(name, mode in oracle.FITS))
            except AssertionError as error:
                wrong[name, mode] = str(error)
    assert not wrong


def test_a_checkpoint_of_tensorflow_2_refuses_an_optimizer_of_tensorflow_1(tmp_path):
    optimizer = de.DynamicEmbeddingOptimizer(v1.AdamOptimizer())
    with pytest.raises(NotImplementedError, match=r"saved by a tf.compat.v1.train.Saver"):
        tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "checkpoint"))
