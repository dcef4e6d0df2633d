"""Every Keras optimizer computes the same values for tables as for dense variables.

The tests train eagerly, in a `tf.function`, and in Keras's `fit`; see `oracle.MODES`.
"""

import keras
import pytest

from tests.support import oracle

OPTIMIZERS = {
    "sgd": lambda **k: keras.optimizers.SGD(0.1, **k),
    "momentum": lambda **k: keras.optimizers.SGD(0.1, momentum=0.9, **k),
    "nesterov": lambda **k: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, **k),
    "adagrad": lambda **k: keras.optimizers.Adagrad(0.1, **k),
    "adadelta": lambda **k: keras.optimizers.Adadelta(1.0, **k),
    "rmsprop": lambda **k: keras.optimizers.RMSprop(0.01, **k),
    "rmsprop centered": lambda **k: keras.optimizers.RMSprop(
        0.01, momentum=0.5, centered=True, **k
    ),
    "adam": lambda **k: keras.optimizers.Adam(0.01, **k),
    "amsgrad": lambda **k: keras.optimizers.Adam(0.01, amsgrad=True, **k),
    "adamw": lambda **k: keras.optimizers.AdamW(0.01, **{"weight_decay": 0.1, **k}),
    "adamax": lambda **k: keras.optimizers.Adamax(0.01, **k),
    "nadam": lambda **k: keras.optimizers.Nadam(0.01, **k),
    "ftrl": lambda **k: keras.optimizers.Ftrl(0.1, **oracle.FTRL, **k),
    "lion": lambda **k: keras.optimizers.Lion(0.01, **k),
    "lamb": lambda **k: keras.optimizers.Lamb(0.01, **k),
    "adam by its schedule": lambda **k: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.5), **k
    ),
}
NAMES = list(OPTIMIZERS)
# A table uses the norm of the row where a dense variable uses the norm of the whole variable.
BY_ROW = {"lamb"}


@pytest.mark.each_choice
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("name", NAMES)
def test_rows_and_variables_equal_the_dense_ones(name, mode, shards):
    oracle.check(OPTIMIZERS[name], by_row=name in BY_ROW, mode=mode, shards=shards)


SETTINGS = [
    {"clipnorm": 0.05},
    {"clipvalue": 0.01},
    {"global_clipnorm": 0.05},
    {"weight_decay": 0.2},
    {"loss_scale_factor": 64.0},
    {"loss_scale_factor": 100.0, "global_clipnorm": 0.05},
    {"use_ema": True, "ema_momentum": 0.7},
    {"use_ema": True, "ema_momentum": 0.7, "ema_overwrite_frequency": 2},
    {"gradient_accumulation_steps": 2},
    {"gradient_accumulation_steps": 3, "clipnorm": 0.05, "weight_decay": 0.1},
    {"gradient_accumulation_steps": 2, "global_clipnorm": 0.05},
]


@pytest.mark.each_choice
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in BY_ROW])
def test_settings_hold_for_tables_and_variables(name, settings):
    mode = "eager" if name == "sgd" else "function"
    oracle.check(lambda: OPTIMIZERS[name](**settings), mode=mode)
