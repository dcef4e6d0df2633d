"""Unsupported TensorFlow features around a lookup raise errors and never give wrong numbers."""

import pytest
import tensorflow as tf

import de_core as de

IDS = tf.constant([3, 3, 5], tf.int64)
NOT_DENSE = (ValueError, tf.errors.InvalidArgumentError)
IS_NEGATIVE = (
    "num_segments == -1 must not be negative|must be non-negative but is -1|must stay sparse"
)


@pytest.fixture(params=["looked up", "pooled"])
def rows_of(request):
    table = de.Variable(dim=2, name="users", initializer=2.0)
    if request.param == "looked up":
        return table, lambda: de.embedding_lookup(table, IDS)
    ids = tf.RaggedTensor.from_row_lengths(IDS, [2, 1])
    return table, lambda: de.embedding_lookup_sparse(table, ids, None, combiner="sum")


@pytest.fixture(params=[False, True], ids=["eager", "function"])
def run(request):
    return lambda function: (tf.function(function) if request.param else function)()


@pytest.mark.each_choice
@pytest.mark.parametrize("vectorized", [True, False])
def test_a_jacobian(rows_of, run, vectorized):
    table, rows = rows_of
    factor = tf.Variable(3.0)

    def jacobian(sources):
        with tf.GradientTape(persistent=True) as tape:
            inputs = rows()
            tape.watch(inputs)
            outputs = inputs**2 * factor
        found = inputs if sources is None else sources
        return tape.jacobian(outputs, found, experimental_use_pfor=vectorized)

    anchor = table.trainable_variables[0]
    message = "vectorizing the jacobian" if vectorized else IS_NEGATIVE
    with pytest.raises(NOT_DENSE, match=message):
        run(lambda: jacobian(anchor))
    with pytest.raises(NOT_DENSE, match=message):
        run(lambda: jacobian([factor, anchor]))
    assert float(tf.reduce_max(run(lambda: jacobian(None)))) in (12.0, 24.0)
    assert float(tf.reduce_max(run(lambda: jacobian(factor)))) in (4.0, 16.0)


def test_recomputing(rows_of, run):
    table, rows = rows_of

    def gradient(recomputed, looked_up):
        with tf.GradientTape() as tape:
            inputs = looked_up()
            loss = tf.reduce_sum(tf.recompute_grad(recomputed)(inputs))
        return tape.gradient(loss, table.trainable_variables[0])

    with pytest.raises(NOT_DENSE, match=IS_NEGATIVE):
        run(lambda: gradient(lambda factor: rows() * factor, lambda: tf.constant(2.0)))
    assert set(run(lambda: gradient(tf.square, rows)).indices.numpy()) == {3, 5}


UNSUPPORTED = "unsupported operations when trying to compile graph"


def test_xla(rows_of):
    _, rows = rows_of
    compiled = tf.function(rows, jit_compile=True)
    inner = tf.function(rows)
    for traced in (
        compiled,
        tf.function(lambda: compiled()),
        tf.function(lambda: inner(), jit_compile=True),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=UNSUPPORTED):
            traced()
    assert float(tf.function(tf.reduce_sum, jit_compile=True)(rows())) > 0


@pytest.mark.each_choice
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("verb", ["upsert", "contains", "remove", "size", "clear", "export"])
def test_verbs_under_xla(verb, shards):
    table = de.Variable(dim=2, name="users", devices=["/CPU:0"] * shards)
    inputs = {"upsert": (IDS, tf.ones([3, 2])), "contains": (IDS,), "remove": (IDS,)}

    def run():
        getattr(table, verb)(*inputs.get(verb, ()))

    with pytest.raises(tf.errors.InvalidArgumentError, match=UNSUPPORTED):
        tf.function(run, jit_compile=True)()
    tf.function(run)()


def test_a_step_under_xla():
    table = de.Variable(dim=2, name="users")
    optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(0.1))
    anchor = table.trainable_variables[0]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(de.embedding_lookup(table, IDS))
    gradient = tape.gradient(loss, anchor)

    def step():
        optimizer.apply_gradients([(gradient, anchor)])

    with pytest.raises(tf.errors.InvalidArgumentError, match=UNSUPPORTED):
        tf.function(step, jit_compile=True)()
    tf.function(step)()
