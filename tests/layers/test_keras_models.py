"""Tests Keras 3 models with tables under `compile` and `fit`."""

import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import Subclassed, functional


def optimizer(inner=None):
    return de.DynamicEmbeddingOptimizer(inner or keras.optimizers.Adam(0.05))


class Nested(keras.Model):
    """A layer that creates its tables in `build`, inside another layer."""

    def __init__(self):
        super().__init__()
        self.tower = Tower()
        self.score = keras.layers.Dense(1, activation="sigmoid")

    def call(self, inputs):
        return self.score(self.tower(inputs))


class Tower(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = InnerTower()

    def call(self, inputs):
        return self.inner(inputs)


class InnerTower(keras.layers.Layer):
    def build(self, _):
        self.users = de.Variable(dim=8, initializer="uniform", name="users")
        self.items = de.layers.Embedding(8, initializer="uniform", name="items")
        self.hidden = keras.layers.Dense(16, activation="relu")

    def call(self, inputs):
        rows = [self.users.lookup(inputs["user"]), self.items(inputs["item"])]
        return self.hidden(tf.concat(rows, -1))


MODELS = [functional, Subclassed, Nested]


@pytest.mark.each_choice
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_models_learn_under_fit(make, run_eagerly, ratings):
    users, items, pleases = ratings
    keras.utils.set_random_seed(0)
    model = make()
    model.compile(optimizer(), "binary_crossentropy", run_eagerly=run_eagerly)
    epochs = 5 if run_eagerly else 12
    ids = {"user": users, "item": items}
    losses = model.fit(ids, pleases, epochs=epochs, batch_size=64, verbose=0).history["loss"]
    assert losses[-1] < (0.85 if run_eagerly else 0.35) * losses[0]
    assert int(model.optimizer.iterations) == 8 * epochs


def test_a_sequential_model_without_an_input_layer_keeps_long_ids_apart():
    ids = np.array([[2**62 + 1], [2**62 + 2], [2**24 + 1], [2**24]], np.int64)
    model = keras.Sequential(
        [
            de.layers.Embedding(4, initializer="normal"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer(), "mse")
    targets = np.array([[0.0], [1.0], [2.0], [3.0]])
    model.fit(
        np.tile(ids, [150, 1]), np.tile(targets, [150, 1]), batch_size=4, shuffle=False, verbose=0
    )
    keys, _ = model.layers[0].table.export()
    assert sorted(keys.numpy()) == sorted(ids[:, 0])
    np.testing.assert_allclose(model.predict(ids, verbose=0)[:, 0], [0, 1, 2, 3], atol=0.2)


def test_a_layer_made_frozen_can_be_unfrozen():
    layer = de.layers.Embedding(2, trainable=False)
    features = de.FeatureConfig("item", de.TableConfig("frozen", 2))
    collection = de.layers.EmbeddingCollection(features, trainable=False)
    assert collection.trainable_variables == []
    inputs = keras.Input([1], dtype="int64")
    rows = keras.ops.sum(layer(inputs), axis=1) + collection(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(rows))
    for frozen in (True, False):
        layer.trainable = collection.trainable = not frozen
        model.compile(optimizer(), "mse")
        model.fit(np.array([[7], [8]]), np.ones([2, 1]), verbose=0)
        for table in (layer.table, collection.tables["frozen"]):
            assert int(table.size()) == (0 if frozen else 2)


def test_string_ids_under_fit():
    words = np.array([["good"], ["bad"], ["fine"], ["awful"]])
    model = keras.Sequential(
        [
            keras.Input([1], dtype="string"),
            de.layers.Embedding(4, key_dtype=tf.string, initializer="uniform", combiner="sum"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer(), "binary_crossentropy")
    data = tf.data.Dataset.from_tensors((words, np.array([[1.0], [0.0], [1.0], [0.0]])))
    losses = model.fit(data, epochs=60, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.1
    keys, _ = model.layers[0].table.export()
    assert set(keys.numpy()) == {b"good", b"bad", b"fine", b"awful"}


def test_one_layer_on_several_inputs_shares_its_rows():
    layer = de.layers.Embedding(2, initializer="normal")
    first, second = keras.Input([3], dtype="int64"), keras.Input([], dtype="int64")
    rows = keras.ops.sum(layer(first), axis=1) + layer(second)
    model = keras.Model([first, second], rows)
    model.compile(optimizer(keras.optimizers.SGD(1.0)), lambda _, y: tf.reduce_sum(y))
    before = layer.table.lookup([5, 6]).numpy()
    history, target = np.array([[5, 5, 6]]), np.array([5])
    model.train_on_batch((history, target), np.zeros([1, 2]))
    np.testing.assert_allclose(layer.table.lookup([5, 6]), before - [[3], [1]], rtol=1e-5)


class MasksSevens(keras.layers.Layer):
    """Passes ids on and masks 7."""

    supports_masking = True

    def call(self, ids):
        return ids

    def compute_mask(self, ids, mask=None):
        del mask
        return keras.ops.not_equal(ids, 7)


def test_the_mask_of_a_layer_before_and_padding_both_reach_the_layers_that_follow():
    ids = keras.Input([4], dtype="int64")
    rows = de.layers.Embedding(1, mask_key=0)(MasksSevens(dtype="int64")(ids))
    model = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(rows))
    model.layers[-2].table.upsert([0, 1, 2, 7], [[9.0], [1.0], [3.0], [100.0]])
    for given in ([1, 2, 0, 7], [7, 1, 2, 2], [1, 1, 0, 0]):
        kept = [{1: 1.0, 2: 3.0}[each] for each in given if each not in (0, 7)]
        found = model(tf.constant([given], tf.int64))
        assert float(found[0, 0]) == pytest.approx(np.mean(kept)), given


def test_a_mask_of_string_ids():
    words = keras.Input([2], dtype="string")
    rows = de.layers.Embedding(1, key_dtype=tf.string, mask_key="", initializer=1.0)(words)
    model = keras.Model(words, keras.layers.LSTM(3)(rows))
    padded, short = tf.constant([["a", ""]]), tf.constant([["a", "b"]])
    assert np.any(model(padded) != model(short))


def test_optimizers_come_back_from_their_config():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    for inner in ("adagrad", keras.optimizers.SGD(schedule, momentum=0.5, clipnorm=1.0)):
        wrapped = de.DynamicEmbeddingOptimizer(inner, bp_v2=True, name="wrapped")
        config = keras.optimizers.serialize(wrapped)
        json.dumps(config)
        copy = keras.optimizers.deserialize(config)
        assert type(copy) is type(wrapped)
        assert copy.get_config() == wrapped.get_config()
        assert copy.inner_optimizer.get_config() == wrapped.inner_optimizer.get_config()


def test_a_file_finds_classes_by_their_registered_names_whatever_their_modules(tmp_path):
    layer = de.layers.Embedding(
        2, restrict_policy=de.TimestampRestrictPolicy, eviction=de.EvictionLRU(100), name="users"
    )
    model = keras.Sequential([keras.Input([], dtype="int64"), layer, keras.layers.Dense(1)])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    ids = np.arange(4)
    model.fit(ids, np.ones(4), verbose=0)
    model.save(tmp_path / "model.keras")
    with (
        zipfile.ZipFile(tmp_path / "model.keras") as archive,
        zipfile.ZipFile(tmp_path / "moved.keras", "w") as moved,
    ):
        for name in archive.namelist():
            content = archive.read(name)
            moved.writestr(name, content.replace(b'"module": "de_core', b'"module": "de_core.gone'))
    loaded = keras.models.load_model(tmp_path / "moved.keras")
    np.testing.assert_allclose(loaded.predict(ids, verbose=0), model.predict(ids, verbose=0))
    assert loaded.get_layer("users").table.eviction == (de.EvictionLRU(100),)
