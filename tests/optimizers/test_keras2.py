"""tf_keras optimizers, new and legacy, match dense variables."""

import itertools

import numpy as np
import pytest
import tf_keras

import de_core as de
from tests.support import oracle

new, legacy = tf_keras.optimizers, tf_keras.optimizers.legacy
BOTH = {
    "sgd": lambda of, **k: of.SGD(0.1, **k),
    "nesterov": lambda of, **k: of.SGD(0.1, momentum=0.9, nesterov=True, **k),
    "adagrad": lambda of, **k: of.Adagrad(0.1, epsilon=1e-3, **k),
    "adadelta": lambda of, **k: of.Adadelta(1.0, **k),
    "rmsprop": lambda of, **k: of.RMSprop(0.01, epsilon=1e-3, **k),
    "rmsprop centered": lambda of, **k: of.RMSprop(0.01, epsilon=1e-3, centered=True, **k),
    "rmsprop momentum": lambda of, **k: of.RMSprop(0.01, momentum=0.5, centered=True, **k),
    "adam": lambda of, **k: of.Adam(0.01, **k),
    "amsgrad": lambda of, **k: of.Adam(0.01, amsgrad=True, **k),
    "adamax": lambda of, **k: of.Adamax(0.01, **k),
    "nadam": lambda of, **k: of.Nadam(0.01, **k),
    "ftrl": lambda of, **k: of.Ftrl(0.1, **oracle.FTRL, **k),
    "by a schedule": lambda of, **k: of.SGD(
        tf_keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), **k
    ),
}
CASES = [(make, of, {}) for make in BOTH.values() for of in (new, legacy)] + [
    (lambda _, **k: new.AdamW(0.01, weight_decay=0.1, **k), new, {}),
    (lambda _, **k: new.Lion(0.01, **k), new, {}),
    (BOTH["adam"], new, {"global_clipnorm": 0.05}),
    (BOTH["adam"], legacy, {"global_clipnorm": 0.05}),
    (BOTH["adam"], new, {"use_ema": True, "ema_overwrite_frequency": 2}),
    (BOTH["sgd"], legacy, {"decay": 0.1, "clipvalue": 0.01}),
]


def compare(make, of, settings, mode, shards):
    settings = dict(settings)
    if of is new:
        settings["jit_compile"] = False
    tables = oracle.Tables(
        de.DynamicEmbeddingOptimizer(make(of, **settings)), mode=mode, shards=shards, scales=False
    )
    dense = oracle.Dense(make(of, **settings), scales=False)
    data = list(oracle.batches(6))
    losses = np.reshape(dense.run(data), [-1, tables.steps_a_call]).sum(1)
    oracle.assert_same([tables.run(data)], [losses])
    if mode in oracle.FITS and settings.get("use_ema"):
        dense.optimizer.finalize_variable_values(dense.variables)
    oracle.assert_same(tables.finish(), dense.finish())
    assert int(tables.optimizer.iterations) == 6
    return tables


def possible(number, mode):
    """Returns whether tf_keras supports the case. In functions, its new Nadam counts traces."""
    make, of, _ = CASES[number]
    return "eager" in mode or not (of is new and make is BOTH["nadam"])


def in_short(number, mode, shards):
    # Half of the new and half of the legacy optimizers in each mode.
    return mode == ("eager", "function")[(number // 2 + number) % 2] and shards == number % 3 + 1


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("number", "mode", "shards"),
    [
        pytest.param(*case, marks=[] if in_short(*case) else pytest.mark.slow)
        for case in itertools.product(range(len(CASES)), ("eager", "function"), (1, 2, 3))
        if possible(*case[:2])
    ],
)
def test_rows_equal_the_dense_ones(number, mode, shards):
    of = CASES[number][1]
    tables = compare(*CASES[number], mode, shards)
    assert isinstance(tables.optimizer, of.Optimizer)
    config = tf_keras.optimizers.serialize(tables.optimizer)
    copy = tf_keras.optimizers.deserialize(config, use_legacy_optimizer=of is legacy)
    assert copy.get_config() == tables.optimizer.get_config()


CLIPPED = [{"clipnorm": 0.05}, {"clipvalue": 0.01}, {"global_clipnorm": 0.05}]
CLIPPED_TWICE = [
    {"clipvalue": 0.01, "clipnorm": 0.03},
    {"clipvalue": 0.01, "global_clipnorm": 0.05},
]
SETTINGS = {
    new: [
        *CLIPPED,
        {"weight_decay": 0.2},
        {"weight_decay": 0.1, "clipnorm": 0.05},
        {"use_ema": True, "ema_momentum": 0.7},
        *CLIPPED_TWICE,
    ],
    legacy: [
        *CLIPPED,
        {"decay": 0.1},
        {"decay": 0.3, "global_clipnorm": 0.05},
        *CLIPPED_TWICE,
    ],
}
SETTINGS_IN_SHORT = [
    ("adagrad", new, 4),
    ("sgd", new, 6),
    ("sgd", new, 7),
    ("ftrl", legacy, 2),
    ("rmsprop momentum", legacy, 4),
    ("sgd", legacy, 5),
    ("sgd", legacy, 6),
]


@pytest.mark.parametrize("of", [new, legacy], ids=["new", "legacy"])
def test_it_comes_back_with_a_saved_model(of, tmp_path):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile(de.DynamicEmbeddingOptimizer(of.SGD(0.125)), "mse")
    model.fit(np.ones([4, 1]), np.ones([4, 1]), verbose=0)
    model.save(tmp_path / "model")
    loaded = tf_keras.models.load_model(tmp_path / "model").optimizer
    assert type(loaded) is type(model.optimizer)
    assert type(loaded.inner_optimizer) is of.SGD
    assert float(loaded.learning_rate) == 0.125


@pytest.mark.parametrize(
    ("name", "of", "number"),
    [
        pytest.param(*case, marks=[] if case in SETTINGS_IN_SHORT else pytest.mark.slow)
        for case in [
            (name, of, number)
            for of, settings in SETTINGS.items()
            for name in BOTH
            for number in range(len(settings))
            if name != "by a schedule" or "decay" not in settings[number]
        ]
    ],
)
def test_settings_hold_for_tables_and_variables(name, of, number):
    in_function = number % 2 and not (of is new and name == "nadam")
    mode = "function" if in_function else "eager"
    compare(BOTH[name], of, SETTINGS[of][number], mode, shards=number % 3 + 1)


FITS = [case for case in itertools.product(range(len(CASES)), oracle.FITS) if possible(*case)]
FITS_IN_SHORT = [(14, "fit"), (21, "train_step")]


def check_all(cases):
    for number, mode in cases:
        compare(*CASES[number], mode, shards=number % 3 + 1)
    print("equal")


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(FITS_IN_SHORT, id="short"),
        pytest.param(
            [each for each in FITS if each not in FITS_IN_SHORT], id="rest", marks=pytest.mark.slow
        ),
    ],
)
def test_models_that_fit_have_the_dense_rows(forks, monkeypatch, cases):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    done = forks.call(check_all, cases)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "equal"


FIT = """
import numpy as np, tensorflow as tf, tf_keras
import de_core as de

ids = np.arange(64, dtype=np.int64) % 16
labels = (ids % 3).astype(np.float32)[:, None]
for policy, scaled in (("float32", False), ("float32", True), ("mixed_float16", False)):
    tf_keras.mixed_precision.set_global_policy(policy)
    for of in (tf_keras.optimizers, tf_keras.optimizers.legacy):
        layer = de.layers.Embedding(4, initializer=0.1)
        model = tf_keras.Sequential([layer, tf_keras.layers.Dense(1, dtype="float32")])
        given = of.Adam(0.1)
        if policy == "float32" and scaled:
            given = tf_keras.mixed_precision.LossScaleOptimizer(given)
        model.compile(de.DynamicEmbeddingOptimizer(given), "mse")
        history = model.fit(ids, labels, batch_size=16, epochs=10, verbose=0).history["loss"]
        assert history[-1] < history[0] / 2, (policy, of, history)
        assert int(layer.table.size()) == 16
for of in (tf_keras.optimizers, tf_keras.optimizers.legacy):
    model = tf_keras.Sequential([de.layers.Embedding(4), tf_keras.layers.Dense(1)])
    model.compile(of.Adam(0.1), "mse")
    try:
        model.fit(ids, labels, verbose=0)
    except RuntimeError as error:
        remedies = ("de.DynamicEmbeddingOptimizer", "in_de_dynamic_embedding_optimizer")
        assert any(each in str(error) for each in remedies), error
    else:
        raise AssertionError(f"{of} was not refused")
print("fitted")
"""


@pytest.mark.slow
def test_models_of_tf_keras_fit_with_and_without_a_loss_scale(run_python, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert run_python(FIT).splitlines()[-1] == "fitted"
