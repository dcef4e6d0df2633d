"""Tables with other dtypes and uses match a dense variable."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support import oracle
from tests.support.oracle import DIM, IDS


def new_table(name="oracle"):
    return de.Variable(
        dim=DIM, initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3), name=name
    )


def test_rows_without_a_gradient_stay_as_they_are():
    """Compares each row with a dense Adam that only runs in steps where the row has a gradient."""
    table = new_table()
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1))
    expected = {key: row for key, row in enumerate(table.lookup(np.arange(IDS)).numpy())}
    moments = {key: (np.zeros(DIM), np.zeros(DIM)) for key in expected}
    rng = np.random.default_rng(1)
    for step in range(1, 8):
        ids = rng.integers(0, IDS, size=5)
        weights = rng.normal(size=(5, DIM)).astype(np.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup(ids) * weights)
        optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)
        for key in np.unique(ids):
            gradient = weights[ids == key].sum(0, dtype=np.float64)
            m, v = moments[key]
            m, v = m + 0.1 * (gradient - m), v + 0.001 * (gradient**2 - v)
            alpha = 0.1 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            moments[key] = m, v
            expected[key] = expected[key] - alpha * m / (np.sqrt(v) + 1e-7)
    assert int(optimizer.iterations) == 7
    np.testing.assert_allclose(
        table.lookup(np.arange(IDS)), [expected[key] for key in range(IDS)], rtol=1e-4, atol=1e-6
    )


def test_the_learning_rate_can_change_between_steps():
    table = new_table()
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1))
    before = table.lookup([1]).numpy()

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup([1]))
        optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)

    step()
    optimizer.learning_rate = 0.5
    step()
    np.testing.assert_allclose(table.lookup([1]), before - 0.6, rtol=1e-5)


def test_several_tables_and_no_ordinary_variable():
    users, items = new_table(name="users"), new_table(name="items")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    variables = [*users.trainable_variables, *items.trainable_variables]
    u, i = users.lookup([1]).numpy(), items.lookup([2]).numpy()
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(users.lookup([1])) + 2 * tf.reduce_sum(items.lookup([2]))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    assert int(optimizer.iterations) == 3
    np.testing.assert_allclose(users.lookup([1]), u - 3, rtol=1e-5)
    np.testing.assert_allclose(items.lookup([2]), i - 6, rtol=1e-5)


@pytest.mark.parametrize("key_dtype", [tf.int32, tf.string])
def test_other_key_dtypes_train_the_same(key_dtype):
    def adam():
        return keras.optimizers.Adam(0.01)

    tables, dense = oracle.check(adam, steps=4, key_dtype=key_dtype, shards=2)
    assert tables.tables["users"].key_dtype == key_dtype
    assert int(dense.optimizer.iterations) == 4


def test_float64_rows_train_in_float64():
    table = de.Variable(value_dtype=tf.float64, dim=1)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([1])) * (1 + 2.0**-40)
    optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)
    assert float(table.lookup([1])[0, 0]) == -(1 + 2.0**-40)


def test_a_step_without_any_gradient_says_so():
    table = new_table()
    optimizer = de.DynamicEmbeddingOptimizer("sgd")
    with pytest.raises(ValueError, match="At least one variable must have a gradient"):
        optimizer.apply([None], table.trainable_variables)
    assert int(optimizer.iterations) == 0
