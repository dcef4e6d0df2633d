"""The value of a table's weight carries the rows wherever Keras copies a model's weights."""

import copy
import gc
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras
from tests.support.applies import applies_if

IDS = np.arange(20).reshape(10, 2)
TARGETS = np.random.default_rng(0).normal(size=[10, 1]).astype(np.float32)


def make(inner=None, **arguments):
    inputs = keras.Input([2], dtype="int64")
    rows = [
        de.layers.Embedding(3, name="first", devices=["/CPU:0"] * 2, **arguments)(inputs),
        de.layers.Embedding(3, name="second", **arguments)(inputs),
    ]
    hidden = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(de.DynamicEmbeddingOptimizer(inner or keras.optimizers.Adam(0.1)), "mse")
    return model


def fit(model, epochs=2, **arguments):
    return model.fit(IDS, TARGETS, epochs=epochs, verbose=0, **arguments)


def answers(model):
    return np.asarray(model(tf.constant(IDS)))


def rows_of(model):
    """Returns all rows and slots by table and key."""
    found = {}
    for name in ("first", "second"):
        table = model.get_layer(name).table
        for part in (table, *table.get_slot_variables(model.optimizer)):
            keys, values = (each.numpy() for each in part.export())
            order = np.argsort(keys)
            found[part.name] = (keys[order], values[order])
    return found


class AfterTheBest(keras.callbacks.Callback):
    """Makes the first epoch the best, and records the model's answers after it."""

    def on_epoch_end(self, epoch, logs=None):
        logs["loss"] = float(epoch)
        if epoch == 0:
            self.answers = answers(self.model)


def test_early_stopping_restores_the_best_rows():
    model, best = make(), AfterTheBest()
    stopping = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    fit(model, 9, callbacks=[best, stopping])
    assert stopping.stopped_epoch == 2
    np.testing.assert_array_equal(answers(model), best.answers)


def test_set_weights_restores_rows_and_slots_and_removes_newer_rows():
    model = make()
    fit(model)
    rows, wanted, weights = rows_of(model), answers(model), model.get_weights()
    assert [each.shape for each in weights[:2]] == [(0, 3), (0, 3)]
    assert [each.dtype for each in weights[:2]] == [np.float32] * 2
    fit(model)
    model.get_layer("first").table.upsert([99], [[1.0, 1.0, 1.0]])
    assert np.abs(answers(model) - wanted).max() > 0.01
    model.set_weights(weights)
    np.testing.assert_array_equal(answers(model), wanted)
    restored = rows_of(model)
    assert restored.keys() == rows.keys()
    for name, (keys, values) in rows.items():
        np.testing.assert_array_equal(restored[name][0], keys)
        np.testing.assert_array_equal(restored[name][1], values)
    fit(model)


@pytest.mark.parametrize(
    "passed_on", [list, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w))]
)
def test_clones_get_the_rows_and_slots_of_their_own(passed_on):
    model = make()
    fit(model)
    clone = keras.models.clone_model(model)
    clone.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    fit(clone, 1)
    clone.get_layer("first").table.upsert([99], [[1.0, 1.0, 1.0]])
    clone.set_weights(passed_on(model.get_weights()))
    np.testing.assert_array_equal(answers(clone), answers(model))
    assert int(clone.get_layer("first").table.size()) == 20
    assert all(not np.any(values) for name, (_, values) in rows_of(clone).items() if "/" in name)
    before = answers(model)
    fit(clone)
    np.testing.assert_array_equal(answers(model), before)


@pytest.mark.parametrize("arguments", [{"trainable": False}, {"value_dtype": "bfloat16"}])
def test_tables_that_are_frozen_or_short_are_carried_too(arguments):
    model, clone = make(**arguments), make(**arguments)
    model.get_layer("first").table.upsert(
        [0, 1], tf.cast([[1, 2, 3], [4, 5, 6]], model.get_layer("first").table.value_dtype)
    )
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(answers(clone), answers(model))
    assert int(clone.get_layer("first").table.size()) == 2


def test_tables_of_words_and_whole_numbers_are_carried_too():
    for value_dtype, row in (("string", ["a", "b"]), ("int32", [1, 2]), ("int64", [1, 2])):
        made = [de.Variable(tf.string, value_dtype, 2, name=value_dtype) for _ in range(2)]
        made[0].upsert(["x"], [row])
        made[1].set_weights(made[0].get_weights())
        assert made[1].lookup(["x"]).numpy().tolist() == made[0].lookup(["x"]).numpy().tolist()
        assert int(made[1].size()) == 1


def test_files_of_values_go_with_the_values(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = make()
    fit(model)
    weights = model.get_weights()
    assert len(list(tmp_path.glob("*/*.de"))) == 3
    view = np.asarray(weights[0])
    del weights
    gc.collect()
    assert len(list(Path(tmp_path).glob("*/*.de"))) == 2
    assert view.shape == (0, 3)
    del view
    gc.collect()
    assert list(tmp_path.iterdir()) == []


COMPUTATIONS = [
    lambda value: 0.9 * value,
    lambda value: value + value,
    lambda value: np.isnan(value),
    lambda value: value.sum(),
    lambda value: np.sqrt(value),
]


@pytest.mark.parametrize("compute", COMPUTATIONS)
def test_computing_with_a_value_is_refused(compute):
    (value,) = de.Variable(dim=2).get_weights()
    with pytest.raises(TypeError, match=r"must not be used in a computation(?s:.)*Variable.upsert"):
        compute(value)


LOST = [
    lambda weights: [np.asarray(each) * 1.0 for each in weights],
    lambda weights: [np.mean([each, each], axis=0) for each in weights],
    lambda weights: [np.zeros(each.shape, each.dtype) for each in weights],
]


@pytest.mark.parametrize("lose", LOST)
def test_values_that_lost_their_rows_are_refused(lose):
    model = make()
    fit(model)
    before = answers(model)
    with pytest.raises((ValueError, TypeError), match="value of a table's weight must"):
        model.set_weights(lose(model.get_weights()))
    np.testing.assert_array_equal(answers(model), before)


def test_a_table_of_another_kind_is_refused_unchanged():
    table = de.Variable(dim=2, initializer=1.0)
    other = de.Variable(tf.string, dim=2)
    other.upsert(["a"], [[1.0, 2.0]])
    table.upsert([1], [[5.0, 6.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="keys"):
        table.set_weights(other.get_weights())
    assert table.lookup([1]).numpy().tolist() == [[5.0, 6.0]]


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_h5_files_of_weights_hold_the_rows_or_are_refused(tmp_path):
    model = make()
    fit(model)
    wanted = answers(model)
    model.save_weights(tmp_path / "w.weights.h5")
    for path, save in {
        "m.h5": model.save,
        **({"w.h5": model.save_weights} if LEGACY else {}),
    }.items():
        with pytest.raises(ValueError, match=r"must carry the table's rows(?s:.)*\.weights\.h5"):
            save(str(tmp_path / path))
    clone = make()
    fit(clone, 1)
    clone.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(answers(clone), wanted)


@applies_if(not LEGACY, "Keras 3, for its callback")
def test_swapped_averages_are_refused():
    model = make(keras.optimizers.SGD(0.1, use_ema=True))
    with pytest.raises(NotImplementedError, match=r"SwapEMAWeights(?s:.)*ema_overwrite_frequency"):
        fit(model, callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)])
    with pytest.raises(NotImplementedError, match="SwapEMAWeights"):
        model.evaluate(IDS, TARGETS, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights()])


def test_a_layer_as_regularizer_adds_no_weights():
    layer = keras.layers.Dense(1)
    layer.build([None, 2])
    table = de.Variable(dim=2, regularizer=layer)
    assert table.regularizer is layer
    assert len(table.trainable_variables) == len(table.weights) == 1
