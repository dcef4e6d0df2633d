"""A table and a dense `tf.Variable` with the same rows, whose results must agree."""

import numpy as np
import tensorflow as tf

import de_core as de

ROWS = 12


class Peers:
    """Row i of `dense` equals the row of key i of `table`."""

    def __init__(self, key_dtype=tf.int64, value_dtype=tf.float32, shards=1, dim=3):
        values = np.random.default_rng(0).normal(size=[ROWS, dim])
        self.dense = tf.Variable(tf.cast(values, value_dtype))
        self.table = de.Variable(key_dtype, value_dtype, dim, devices=["/CPU:0"] * shards)
        self.table.upsert(self.keys(tf.range(ROWS)), self.dense.value())

    def keys(self, numbers):
        """Converts row numbers, dense, sparse or ragged, to keys of the table."""
        if isinstance(numbers, tf.SparseTensor):
            return tf.SparseTensor(numbers.indices, self.keys(numbers.values), numbers.dense_shape)
        if isinstance(numbers, tf.RaggedTensor):
            return numbers.with_flat_values(self.keys(numbers.flat_values))
        numbers = tf.cast(numbers, tf.int64)
        if self.table.key_dtype == tf.string:
            return tf.strings.join(["key", tf.strings.as_string(numbers)])
        return tf.cast(numbers, self.table.key_dtype)

    def dense_gradient(self, gradient: tf.IndexedSlices) -> np.ndarray:
        """Returns the table's gradient as a dense array with one row per row of `dense`."""
        result = np.zeros(self.dense.shape, np.float64)
        for key, row in zip(gradient.indices.numpy(), gradient.values.numpy(), strict=True):
            number = int(key[3:]) if isinstance(key, bytes) else int(key)
            result[number] += row.astype(np.float64)
        return result

    def check(self, lookup, dense_lookup, ids, weights=None, in_function=False, tolerance=1e-6):
        """Compares the results, and the gradients of rows and weights, of two kinds of lookups."""
        factors = None if weights is None else values_of(weights)

        def run(look_up, params, variable, keys):
            def step():
                with tf.GradientTape() as tape:
                    if factors is None:
                        rows = look_up(params, keys, None)
                    else:
                        tape.watch(factors)
                        rows = look_up(params, keys, with_values(weights, factors))
                    flat = values_of(rows)
                    scale = tf.range(1.0, tf.cast(tf.size(flat), tf.float32) + 1)
                    loss = tf.reduce_sum(tf.cast(tf.reshape(flat, [-1]), tf.float32) * scale)
                sources = [variable] if factors is None else [variable, factors]
                return rows, tape.gradient(loss, sources)

            return (tf.function(step) if in_function else step)()

        rows, (gradient, *of_weights) = run(
            lookup, self.table, self.table.trainable_variables[0].value, self.keys(ids)
        )
        wanted, (dense, *dense_of_weights) = run(dense_lookup, self.dense, self.dense, ids)
        assert rows.dtype == wanted.dtype == self.dense.dtype
        compare(rows, wanted, tolerance)
        wanted_gradient = tf.cast(tf.convert_to_tensor(dense), tf.float64).numpy()
        np.testing.assert_allclose(
            self.dense_gradient(gradient), wanted_gradient, rtol=tolerance, atol=tolerance
        )
        touched = {tf.compat.as_str_any(key) for key in gradient.indices.numpy().tolist()}
        keys = tf.reshape(self.keys(values_of(ids)), [-1]).numpy().tolist()
        assert touched <= {tf.compat.as_str_any(key) for key in keys}
        for ours, theirs in zip(of_weights, dense_of_weights, strict=True):
            compare(ours, theirs, tolerance)


def values_of(given):
    """Returns the values of a dense, sparse or ragged tensor as a dense tensor."""
    if isinstance(given, tf.SparseTensor):
        return given.values
    return given.flat_values if isinstance(given, tf.RaggedTensor) else given


def with_values(like, values):
    """Returns a sparse or ragged tensor like `like`, with other values."""
    if isinstance(like, tf.SparseTensor):
        return tf.SparseTensor(like.indices, values, like.dense_shape)
    return like.with_flat_values(values)


def compare(ours, theirs, tolerance):
    if isinstance(ours, tf.RaggedTensor):
        for mine, other in zip(ours.nested_row_splits, theirs.nested_row_splits, strict=True):
            np.testing.assert_array_equal(mine, other)
        ours, theirs = ours.flat_values, theirs.flat_values
    ours, theirs = tf.convert_to_tensor(ours), tf.convert_to_tensor(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(
        tf.cast(ours, tf.float64), tf.cast(theirs, tf.float64), rtol=tolerance, atol=tolerance
    )
