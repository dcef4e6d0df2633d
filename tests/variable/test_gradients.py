import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
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


@pytest.mark.parametrize("in_function", [False, True])
def test_the_gradient_of_some_values_of_the_row_of_a_scalar_id(in_function):
    table = table_of()

    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table.lookup(tf.constant(7, tf.int64)), [1]))
        return tape.gradient(loss, table.trainable_variables)[0]

    assert summed((tf.function(gradient) if in_function else gradient)()) == {7: [0, 1]}


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


COMBINERS = ["sum", "mean", "sqrtn"]


@pytest.mark.parametrize(
    ("source", "combiner", "weighted", "shards"),
    [
        ("rows", None, False, 1),
        *(("rows", combiner, weighted, 1) for combiner in COMBINERS for weighted in (False, True)),
        *(("weights", combiner, True, shards) for combiner in COMBINERS for shards in (1, 3)),
    ],
)
@pytest.mark.parametrize("in_function", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_penalties_on_the_gradient_of_rows_or_weights(
    source, combiner, weighted, shards, in_function
):
    """Computes second-order gradients, through the gradient of the table or of the weights."""
    normal = keras.initializers.RandomNormal(seed=1)
    table = de.Variable(dim=2, initializer=normal, devices=["/CPU:0"] * shards)
    dense = tf.Variable(table.lookup(np.arange(6)))
    ids = tf.constant([[1, 2, 2], [3, 1, 5]], tf.int64)
    sparse = tf.sparse.from_dense(ids)

    def penalty(look_up, look_up_sparse, params, variable, weights):
        with tf.GradientTape() as outer:
            outer.watch(weights)
            with tf.GradientTape() as inner:
                inner.watch(weights)
                # TensorFlow has no second-order gradient without weights.
                factors = sparse.with_values(weights) if weighted or params is dense else None
                if combiner is None:
                    rows = look_up(params, ids)
                else:
                    rows = look_up_sparse(params, sparse, factors, combiner=combiner)
                loss = tf.reduce_sum(rows**3)
            gradient = inner.gradient(loss, weights if source == "weights" else variable)
            if source == "rows":
                places = tf.cast(gradient.indices, tf.int32)
                gradient = tf.math.unsorted_segment_sum(gradient.values, places, 6)
            total = tf.reduce_sum(gradient**2)
        return outer.gradient(total, [variable, weights] if source == "weights" else [variable])

    run = tf.function(penalty) if in_function else penalty
    weights = tf.range(0.5, 3.5, 0.5) if weighted else tf.ones([6])
    anchor = table.trainable_variables[0].value
    ours = run(de.embedding_lookup, de.embedding_lookup_sparse, table, anchor, weights)
    theirs = run(
        tf.nn.embedding_lookup, tf.compat.v1.nn.embedding_lookup_sparse, dense, dense, weights
    )
    expected = tf.convert_to_tensor(theirs[0]).numpy()
    got = summed(ours[0])
    assert set(got) == set(np.flatnonzero(expected.any(1))) == {1, 2, 3, 5}
    for key, row in got.items():
        np.testing.assert_allclose(row, expected[key], rtol=1e-4 if source == "weights" else 1e-5)
    if source == "weights":
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4)


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


@pytest.mark.parametrize("weighted", [False, True])
def test_a_gradient_of_another_shape_is_refused(weighted):
    table, ids = table_of(), tf.sparse.from_dense(tf.constant([[1, 2], [2, 1]], tf.int64))

    @tf.custom_gradient
    def turned(rows):
        return rows, lambda _: tf.ones([2, 2, 1])

    with tf.GradientTape() as tape:
        weights = ids.with_values(tf.ones([4])) if weighted else None
        rows = turned(de.embedding_lookup_sparse(table, ids, weights, combiner="sum"))
        loss = tf.reduce_sum(rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many as the segments"):
        tape.gradient(loss, table.trainable_variables)
