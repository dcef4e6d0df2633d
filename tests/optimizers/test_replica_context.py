"""Steps in the scope of a strategy, inside and outside of `strategy.run`."""

import keras
import pytest
import tensorflow as tf
import tf_keras

import de_core as de


@pytest.mark.parametrize("kind", [keras.optimizers, tf_keras.optimizers])
def test_a_step_outside_of_strategy_run_says_what_to_call(kind):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        table = de.Variable(dim=2, name="users")
        kernel = tf.Variable([[1.0], [1.0]])
        optimizer = de.DynamicEmbeddingOptimizer(kind.SGD(1.0))
        variables = [*table.trainable_variables, kernel]
        optimizer.build(variables)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(de.embedding_lookup(table, [1, 2]), kernel))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    with strategy.scope():
        message = "must run inside of `strategy.run`. Received: a step outside of it, under OneD"
        with pytest.raises(RuntimeError, match=message):
            step()
        with pytest.raises(RuntimeError, match=message):
            tf.function(step)()
    assert int(table.size()) == 0  # nothing was changed
    strategy.run(step)
    assert int(table.size()) == 2
