"""Tests first rows from content: a function of the keys in place of an initializer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

DIM = 2


@keras.saving.register_keras_serializable(package="tests")
def content(keys):
    """Returns the row [key / 10, -key] of each key."""
    keys = tf.cast(keys, tf.float32)
    return tf.stack([keys / 10, -keys], -1)


class Recorded:
    """The same function. Records the keys of each call outside of graphs."""

    def __init__(self):
        self.calls = []

    def __call__(self, keys):
        self.calls.append(keys.numpy().tolist())
        return content(keys)


@pytest.mark.parametrize("shards", [1, 2])
def test_only_keys_without_a_row_read_the_functions_rows(shards):
    function = Recorded()
    users = de.Variable(dim=DIM, row_initializer=function, devices=["/CPU:0"] * shards)
    users.upsert([1, 2], [[7.0, 7.0], [8.0, 8.0]])
    rows = users.lookup([[1, 5], [6, 2]])
    np.testing.assert_array_equal(rows, [[[7, 7], [0.5, -5]], [[np.float32(0.6), -6], [8, 8]]])
    users.lookup([1, 2, 1])
    assert function.calls == [[5, 6]]
    assert int(users.size()) == 2
    np.testing.assert_array_equal(users.find_or_insert([5, 5]), content(tf.constant([5, 5])))
    users.lookup([5])
    assert function.calls[1:] == [[5, 5]] or function.calls[1:] == [[5, 5], [5, 5]]


class OwnSGD(keras.optimizers.SGD):
    """An optimizer that has no rule inside the tables: it works on gathered rows."""


@pytest.mark.filterwarnings("ignore:OwnSGD has no rule")
@pytest.mark.parametrize("optimizer", [keras.optimizers.SGD, OwnSGD])
@pytest.mark.parametrize("traced", [False, True])
def test_training_is_that_of_a_dense_variable(optimizer, traced):
    users = de.Variable(dim=DIM, row_initializer=content)
    dense = tf.Variable(content(tf.range(6)))

    def trainer(optimizer, variables, lookup):
        def step(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(lookup(ids) ** 2)
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        return tf.function(step) if traced else step

    ours = de.DynamicEmbeddingOptimizer(optimizer(0.1))
    steps = [
        trainer(ours, users.trainable_variables, users.lookup),
        trainer(keras.optimizers.SGD(0.1), [dense], lambda ids: tf.gather(dense, ids)),
    ]
    for ids in ([3, 1, 3], [2, 4, 0], [1, 1, 4]):
        for step in steps:
            step(tf.constant(ids, tf.int64))
        np.testing.assert_allclose(users.lookup(tf.range(6, dtype=tf.int64)), dense, rtol=1e-6)
    assert int(users.size()) == 5


def test_a_key_that_is_not_admitted_keeps_the_functions_row():
    users = de.Variable(dim=DIM, row_initializer=content, admission=de.AdmissionCount(2))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    gradient = tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([4], tf.int64))
    for expected in ([0.4, -4], [-0.6, -5], [-1.6, -6]):
        optimizer.apply([gradient], [users])
        np.testing.assert_allclose(users.lookup([4]), [expected], rtol=1e-6)


def model_of(**arguments):
    layer = de.layers.Embedding(
        DIM, name="users", row_initializer=content, initializer="ones", combiner="sum", **arguments
    )
    model = keras.Sequential([keras.Input([None], dtype="int64"), layer])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(np.arange(8).reshape(-1, 2), np.zeros([4, DIM]), batch_size=2, verbose=0)
    return model


@pytest.mark.parametrize("ops", ["de_core", "tensorflow"])
def test_in_a_saved_model_the_policy_decides(ops, tmp_path):
    model = model_of()
    ids = tf.constant([3, 100], tf.int64)
    live = model(ids[:, None]).numpy()
    np.testing.assert_array_equal(live[1], [10, -100])
    for oov, unknown in [("initial", [1, 1]), ("zeros", [0, 0]), (5.0, [5, 5])]:
        version = de.export(model, tmp_path / "exports", oov=oov, ops=ops)
        loaded = tf.saved_model.load(version).signatures
        for found in (
            loaded["de_lookup/users"](ids=ids)["embeddings"],
            *loaded["serving_default"](inputs=ids[:, None]).values(),
        ):
            np.testing.assert_array_equal(found, [live[0], unknown])
    model.export(tmp_path / "plain", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "plain")
    np.testing.assert_array_equal(loaded.serve(ids[:, None]), [live[0], [1, 1]])
    np.testing.assert_array_equal(model(ids[:, None]), live)


def test_a_saved_model_of_keras_has_the_function(tmp_path):
    model = model_of()
    model.save(tmp_path / "model.keras")
    ids = np.array([[3, 100]])
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(reloaded(ids), model(ids))
    de.checkpoint.save(model, tmp_path / "checkpoint")
    other = keras.models.clone_model(model)
    de.checkpoint.restore(other, tmp_path / "checkpoint")
    np.testing.assert_array_equal(other(ids), model(ids))


def test_bad_input():
    for function, message in [
        (lambda keys: tf.zeros([len(keys), DIM + 1]), "shape=TensorShape"),
        (lambda keys: tf.zeros([len(keys), DIM], tf.float64), "dtype='float64'"),
    ]:
        with pytest.raises(ValueError, match=message):
            de.Variable(dim=DIM, row_initializer=function).lookup([1])
    with pytest.raises(TypeError, match="must be a function of keys"):
        de.Variable(dim=DIM, row_initializer="ones")
    with pytest.raises(ValueError, match="either as a shared row or as a function's row"):
        de.Variable(dim=DIM, row_initializer=content, num_oov_indices=2)
