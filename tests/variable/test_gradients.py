import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.lookup.feature import Feature
from de_core.lookup.feature_lookup import lookup_features
from de_core.variable.trainable_wrapper import TrainableWrapper


def table_of(key_dtype=tf.int64, **arguments):
    return de.Variable(key_dtype, dim=2, initializer=1.0, **arguments)


def ids_of(key_dtype, ids):
    ids = tf.constant(ids, tf.int64)
    return tf.strings.as_string(ids) if key_dtype == tf.string else tf.cast(ids, key_dtype)


def summed(gradient):
    """Returns {id: summed gradient} of an IndexedSlices."""
    assert isinstance(gradient, tf.IndexedSlices)
    total = {}
    for key, row in zip(gradient.indices.numpy().tolist(), gradient.values.numpy(), strict=True):
        key = int(key)
        total[key] = total.get(key, 0) + row
    return {key: row.tolist() for key, row in total.items()}


KEY_DTYPES = [tf.int64, tf.int32, tf.string]


@pytest.mark.parametrize("key_dtype", KEY_DTYPES)
@pytest.mark.parametrize("shards", [1, 3])
def test_the_gradient_is_the_ids_with_their_rows_gradients(key_dtype, shards):
    table = table_of(key_dtype, devices=["/CPU:0"] * shards)
    ids = ids_of(key_dtype, [[5, 6], [5, 7]])
    weights = tf.reshape(tf.range(8.0), [2, 2, 2])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(de.embedding_lookup(table, ids) * weights)
    (gradient,) = tape.gradient(loss, table.trainable_variables)
    assert gradient.indices.dtype == key_dtype
    assert [int(each) for each in gradient.indices.numpy()] == [5, 6, 5, 7]
    np.testing.assert_array_equal(gradient.values, tf.reshape(weights, [4, 2]))
    assert gradient.shape.as_list() == [None, 2]


@pytest.mark.parametrize("key_dtype", KEY_DTYPES)
@pytest.mark.parametrize("in_function", [False, True])
def test_gradients_of_several_lookups_add_up(key_dtype, in_function):
    table = table_of(key_dtype)

    def gradient(history, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.embedding_lookup(table, history))
            loss += 10 * tf.reduce_sum(table.lookup(target))
            for _ in range(2):
                loss += 100 * tf.reduce_sum(de.embedding_lookup(table, target))
        return tape.gradient(loss, table.trainable_variables)[0]

    run = tf.function(gradient) if in_function else gradient
    result = run(ids_of(key_dtype, [1, 2, 1]), ids_of(key_dtype, [[2]]))
    assert summed(result) == {1: [2, 2], 2: [211, 211]}


@pytest.mark.parametrize("key_dtype", KEY_DTYPES)
def test_gradients_of_lookups_in_inner_functions(key_dtype):
    table = table_of(key_dtype)
    inner = tf.function(lambda ids: tf.reduce_sum(de.embedding_lookup(table, ids)))
    with tf.GradientTape() as tape:
        loss = inner(ids_of(key_dtype, [1, 2])) + inner(ids_of(key_dtype, [2, 3]))
    (gradient,) = tape.gradient(loss, table.trainable_variables)
    assert summed(gradient) == {1: [1, 1], 2: [2, 2], 3: [1, 1]}


def test_global_norm_and_unconnected_gradients_work():
    table = table_of()
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(de.embedding_lookup(table, [1, 2]))
        other = tf.constant(1.0)
    gradients = tape.gradient(loss, table.trainable_variables)
    np.testing.assert_allclose(tf.linalg.global_norm(gradients), 2.0)
    assert tape.gradient(other, table.trainable_variables) == [None]


def test_making_the_gradient_dense_fails_instead_of_filling_the_memory():
    table = table_of()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(de.embedding_lookup(table, [1]))
    (gradient,) = tape.gradient(loss, table.trainable_variables)
    plain = tf.IndexedSlices(gradient.values, gradient.indices, gradient.dense_shape)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.convert_to_tensor(plain)


@pytest.mark.parametrize("dtype", [tf.int32, tf.string])
def test_values_that_are_no_floats_have_no_gradient(dtype):
    assert list(de.Variable(value_dtype=dtype, dim=2).trainable_variables) == []


def test_modules_layers_and_models_that_hold_a_table_train_it():
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.nested = {"tables": [table_of()]}

    class Layer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = table_of()

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = Layer()
            self.tables = [table_of(), table_of()]

    for holder, count in ((Module(), 1), (Layer(), 1), (Model(), 3)):
        assert len(holder.trainable_variables) == count
    layer = Layer()
    layer.trainable = False
    assert layer.trainable_variables == []


@pytest.mark.parametrize("trainable", [True, False])
def test_return_trainable_gives_what_an_optimizer_trains(trainable):
    table = table_of(trainable=trainable)
    with tf.GradientTape() as tape:
        rows, wrapper = de.embedding_lookup([table], [[1]], max_norm=9.0, return_trainable=True)
        loss = tf.reduce_sum(3 * rows)
    assert isinstance(wrapper, TrainableWrapper)
    assert wrapper.shape == rows.shape
    np.testing.assert_array_equal(wrapper.read_value(), rows)
    gradient = tape.gradient(loss, wrapper)
    if not trainable:
        assert gradient is None
        return
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply_gradients([(gradient, wrapper)])
    np.testing.assert_array_equal(table.lookup([1]), [[-2, -2]])


@pytest.mark.parametrize("in_function", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_penalties_on_the_gradient_of_rows(in_function):
    table = de.Variable(dim=2, initializer=keras.initializers.RandomNormal(seed=1))
    dense = tf.Variable(table.lookup(np.arange(6)))
    ids = tf.constant([[1, 2, 2], [3, 1, 5]], tf.int64)

    def penalty(look_up, params, variable):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(look_up(params, ids) ** 3)
            gradient = inner.gradient(loss, variable)
            places = tf.cast(gradient.indices, tf.int32)
            gradient = tf.math.unsorted_segment_sum(gradient.values, places, 6)
            total = tf.reduce_sum(gradient**2)
        return outer.gradient(total, variable)

    run = tf.function(penalty) if in_function else penalty
    got = summed(run(de.embedding_lookup, table, table.trainable_variables[0].value))
    expected = tf.convert_to_tensor(run(tf.nn.embedding_lookup, dense, dense)).numpy()
    assert set(got) == set(np.flatnonzero(expected.any(1))) == {1, 2, 3, 5}
    for key, row in got.items():
        np.testing.assert_allclose(row, expected[key], rtol=1e-5)


def pooled(table, ids, weights):
    return de.embedding_lookup_sparse(table, ids, ids.with_values(weights))


def of_features(table, ids, weights):
    return lookup_features([Feature(table, ids, ids.with_values(weights))])[0]


@pytest.mark.parametrize("look_up", [pooled, of_features])
@pytest.mark.parametrize("of_weights", [False, True])
def test_a_second_gradient_of_pooled_rows_names_the_remedy(look_up, of_weights):
    table, weights = table_of(), tf.ones([3])
    sparse = tf.sparse.from_dense(tf.constant([[1, 2, 2]], tf.int64))
    variable = weights if of_weights else table.trainable_variables[0].value
    with tf.GradientTape() as outer:
        outer.watch(weights)
        with tf.GradientTape() as inner:
            inner.watch(weights)
            loss = tf.reduce_sum(look_up(table, sparse, weights) ** 3)
        gradient = inner.gradient(loss, variable)
        total = tf.reduce_sum((gradient if of_weights else gradient.values) ** 2)
    with pytest.raises(NotImplementedError, match=r"differentiated twice.*de\.embedding_lookup"):
        outer.gradient(total, weights)


def test_gradients_of_pooled_rows_by_a_python_function():
    table = table_of()
    sparse = tf.sparse.from_dense(tf.constant([[1, 2]], tf.int64))

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            sums = de.embedding_lookup_sparse(table, sparse, None, combiner="sum")
            loss = tf.py_function(lambda rows: 3 * tf.reduce_sum(rows), [sums], tf.float32)
        return tape.gradient(loss, table.trainable_variables)[0]

    assert summed(gradient()) == {1: [3, 3], 2: [3, 3]}


def test_a_tape_names_the_variables_of_a_table():
    table = de.Variable(dim=2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([1]))
    with pytest.raises(AttributeError, match=r"pass its `trainable_variables` to tape\.gradient"):
        tape.gradient(loss, table)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize(
    "densify", [tf.convert_to_tensor, lambda g: tf.where(tf.math.is_nan(g), tf.zeros_like(g), g)]
)
def test_a_gradient_says_that_it_cannot_become_dense(densify, in_function):
    table = de.Variable(dim=2)

    def densified():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup([1]))
        return densify(tape.gradient(loss, table.trainable_variables[0]))

    with pytest.raises(ValueError, match=r"must stay sparse.*Compute on its `values`"):
        (tf.function(densified) if in_function else densified)()
