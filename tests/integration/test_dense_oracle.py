"""A table trains to the numbers of a dense variable with the same initial rows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

IDS, DIM, STEPS = 12, 3, 6

# Dense formulae that move a row without a gradient: there every row gets one in every step.
MOVES_ALL = {"momentum", "nesterov", "adam", "amsgrad"}
OPTIMIZERS = {
    "sgd": lambda **k: keras.optimizers.SGD(0.1, **k),
    "momentum": lambda **k: keras.optimizers.SGD(0.1, momentum=0.9, **k),
    "nesterov": lambda **k: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, **k),
    "adagrad": lambda **k: keras.optimizers.Adagrad(0.1, **k),
    "adam": lambda **k: keras.optimizers.Adam(0.01, **k),
    "amsgrad": lambda **k: keras.optimizers.Adam(0.01, amsgrad=True, **k),
    "adam by its schedule": lambda **k: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.5), **k
    ),
}
NAMES = list(OPTIMIZERS)


def batches(every_id, seed=0):
    """Yields (history [8, 2], target [8], labels [8]) with many duplicate ids."""
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        history = rng.integers(0, IDS, size=(8, 2))
        target = rng.integers(0, IDS, size=8)
        if every_id:
            history.reshape(-1)[:IDS] = rng.permutation(IDS)
        yield history, target, rng.normal(size=8).astype(np.float32)


def loss_of(lookup, dense, history, target, labels):
    """The history's and the target's rows come from one table: two lookups in a step."""
    rows = tf.reduce_sum(lookup(history), axis=1) * lookup(target)
    return tf.reduce_mean((tf.linalg.matvec(rows, dense) - labels) ** 2)


def train(lookup, variables, dense, optimizer, every_id, in_function):
    def step(history, target, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(lookup, dense, history, target, labels)
            loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    run = tf.function(step) if in_function else step
    return [
        float(run(*(tf.convert_to_tensor(each) for each in batch))) for batch in batches(every_id)
    ]


def train_dense(make_optimizer, initial, every_id):
    weights, dense = tf.Variable(initial), tf.Variable(tf.ones([DIM]))

    def lookup(ids):  # by a matrix product, so that the gradient is dense
        return tf.tensordot(tf.one_hot(ids, IDS), weights, 1)

    losses = train(lookup, [weights, dense], dense, make_optimizer(), every_id, in_function=False)
    return losses, weights.numpy(), dense.numpy()


def train_table(make_optimizer, table, every_id, in_function=True):
    dense = tf.Variable(tf.ones([DIM]))
    optimizer = de.DynamicEmbeddingOptimizer(make_optimizer())
    variables = [*table.trainable_variables, dense]
    losses = train(
        lambda ids: de.embedding_lookup(table, ids),
        variables,
        dense,
        optimizer,
        every_id,
        in_function,
    )
    assert int(optimizer.iterations) == STEPS
    return losses, table.lookup(np.arange(IDS)).numpy(), dense.numpy()


def new_table(shards=1, name="oracle", **arguments):
    return de.Variable(
        dim=DIM,
        devices=["/CPU:0"] * shards,
        initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3),
        name=name,
        **arguments,
    )


def assert_same(ours, theirs, rtol=1e-5, atol=1e-6):
    for mine, dense in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, dense, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_every_row_equals_the_dense_variables(name, shards):
    table = new_table(shards)
    every_id = name.split()[0] in MOVES_ALL
    expected = train_dense(OPTIMIZERS[name], table.lookup(np.arange(IDS)).numpy(), every_id)
    assert_same(train_table(OPTIMIZERS[name], table, every_id), expected)


@pytest.mark.parametrize("name", ["momentum", "adagrad", "adam"])
def test_eagerly_too(name):
    table = new_table()
    expected = train_dense(OPTIMIZERS[name], table.lookup(np.arange(IDS)).numpy(), True)
    assert_same(train_table(OPTIMIZERS[name], table, True, in_function=False), expected)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize(
    "settings",
    [
        {"clipnorm": 0.05},
        {"clipvalue": 0.01},
        {"global_clipnorm": 0.05},
        {"loss_scale_factor": 64.0},
        {"loss_scale_factor": 100.0, "global_clipnorm": 0.05},
    ],
    ids=str,
)
def test_clipping_and_loss_scale_hold_over_tables_and_variables(name, settings):
    table = new_table()

    def optimizer():
        return OPTIMIZERS[name](**settings)

    expected = train_dense(optimizer, table.lookup(np.arange(IDS)).numpy(), True)
    assert_same(train_table(optimizer, table, True), expected)


def test_rows_without_a_gradient_stay_as_they_are():
    """The lazy formula: what a dense Adam does, on the steps in which a row has a gradient."""
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


def test_two_optimizers_keep_their_own_slots():
    table = new_table()
    first, second = (
        de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)) for _ in range(2)
    )
    alone = new_table()
    start = table.lookup([1]).numpy()

    def step(optimizer, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(target.lookup([1]))
        optimizer.apply(tape.gradient(loss, target.trainable_variables), target.trainable_variables)

    step(first, table)
    step(second, table)
    step(first, table)
    np.testing.assert_allclose(table.lookup([1]), start - 0.1 - 0.1 - 0.19, rtol=1e-5)
    del alone


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
    def ids(values):
        values = tf.convert_to_tensor(values)
        return tf.strings.as_string(values) if key_dtype == tf.string else tf.cast(values, tf.int32)

    table = de.Variable(key_dtype, dim=DIM, initializer=[0.1, 0.2, 0.3], name="t")
    initial = np.tile(np.float32([0.1, 0.2, 0.3]), [IDS, 1])
    expected = train_dense(OPTIMIZERS["adam"], initial, True)
    dense = tf.Variable(tf.ones([DIM]))
    optimizer = de.DynamicEmbeddingOptimizer(OPTIMIZERS["adam"]())
    losses = train(
        lambda values: de.embedding_lookup(table, ids(values)),
        [*table.trainable_variables, dense],
        dense,
        optimizer,
        True,
        True,
    )
    assert_same([losses, table.lookup(ids(np.arange(IDS))), dense], expected)


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
