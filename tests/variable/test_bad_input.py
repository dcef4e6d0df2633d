import keras
import numpy as np
import pandas
import pyarrow
import pytest
import tensorflow as tf

import de_core as de


@pytest.fixture
def table():
    return de.Variable(dim=2, name="users")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dim": 0}, ValueError, r"an integer from 1 to 4096. Received: dim=0 \(of type int\)"),
        ({"dim": 4097}, ValueError, "Received: dim=4097"),
        ({"dim": -1}, ValueError, "Received: dim=-1"),
        ({"dim": 2.0}, TypeError, r"must be an integer .* Received: dim=2.0 \(of type float\)"),
        ({"dim": True}, TypeError, "Received: dim=True"),
        ({"key_dtype": "nonsense"}, TypeError, "Received: key_dtype='nonsense'"),
        ({"devices": []}, ValueError, "at least one device"),
        ({"devices": 3}, TypeError, "list of device names"),
        ({"devices": "/GPU:0"}, ValueError, "must name CPUs.*Received: device='/GPU:0'"),
        ({"devices": ["/cpu:0", "/job:ps/task:0/device:gpu:1"]}, ValueError, "must name CPUs"),
        ({"devices": [3]}, TypeError, r"Received: device=3 \(of type int\)"),
        ({"init_size": -1}, ValueError, "an integer of at least 0. Received: init_size=-1"),
        ({"init_size": 1.5}, TypeError, "`init_size` must be an integer"),
        ({"partitioner": 3}, TypeError, "`partitioner` must be a function"),
        ({"name": 3}, TypeError, "`name` must be a non-empty string"),
        ({"name": ""}, TypeError, "`name` must be a non-empty string"),
        ({"initializer": object()}, TypeError, "`initializer` must be None, a number"),
        ({"kv_creator": object()}, TypeError, "`kv_creator` must be a de.KVCreator"),
        ({"restrict_policy": object}, TypeError, "`restrict_policy` must be a subclass"),
    ],
)
def test_arguments_of_a_variable(arguments, error, message):
    with pytest.raises(error, match=message):
        de.Variable(**arguments)


@pytest.mark.parametrize("verb", ["lookup", "remove", "contains", "find_or_insert"])
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (np.array([1], np.int32), r"must be int64. Received: keys.dtype=int32 .* tf.cast"),
        (np.array([1.0]), "must be int64. Received: keys.dtype=float64"),
        (np.array([np.nan], np.float32), "must be int64.*dtype=float32 .* Only integers"),
        (["a"], r"must be int64. Received: keys=\['a'\] \(of type list\)"),
        ([1.5], r"must be int64. Received: keys=\[1.5\]"),
        (None, "must be int64. Received: keys=None"),
        (np.array(["a"]), "must be int64. Received: keys.dtype=string"),
        (pandas.Series([1.5]), "must be int64. Received: keys.dtype=float64 .*of type Series"),
        (pandas.Series([1, None]), "must be int64. Received: keys.dtype=float64"),
        (pandas.Index([2**63], dtype="uint64"), "must be int64. Received: keys.dtype=uint64"),
        (pyarrow.array([1.5]), "must be int64. Received: keys.dtype=float64"),
        (tf.ragged.constant([[1], []], dtype=tf.int64), r"must be a dense .*RaggedTensor of shape"),
        (tf.sparse.from_dense([[1]]), r"must be a dense .*SparseTensor of shape \(1, 1\)"),
    ],
)
def test_keys_of_another_dtype(table, verb, keys, message):
    with pytest.raises(TypeError, match=f"`keys` of table 'users' {message}"):
        getattr(table, verb)(keys)


@pytest.mark.parametrize(
    "keys",
    [
        keras.Variable([1], dtype="int64"),
        pandas.Series([1]),
        pandas.Series([1], dtype="Int64"),
        pyarrow.array([1]),
    ],
)
def test_keys_in_arrays_of_other_libraries(table, keys):
    table.upsert(keys, [[1.0, 2.0]])
    assert de.embedding_lookup(table, keys).numpy().tolist() == [[1.0, 2.0]]


def test_integer_keys_for_a_table_of_strings():
    table = de.Variable(tf.string, dim=2, name="words")
    with pytest.raises(TypeError, match=r"must be string\. Received: keys\.dtype=int64"):
        table.lookup(tf.constant([1], tf.int64))
    for wrong in ([1], np.array(["a", None], object)):
        with pytest.raises(TypeError, match="must be string"):
            table.lookup(wrong)


@pytest.mark.parametrize("shape", [[2, 3], [2], [3, 2], [2, 2, 2], [2, 1]])
def test_values_of_another_shape(table, shape):
    with pytest.raises(ValueError, match=r"keys.shape \+ \[dim\], here \(2, 2\)"):
        table.upsert([1, 2], tf.ones(shape))
    assert int(table.size()) == 0


def test_values_of_another_shape_that_shows_only_at_run_time(table):
    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, None], tf.float32)]
    )
    def upsert(keys, values):
        table.upsert(keys, values)

    upsert(tf.constant([1], tf.int64), tf.ones([1, 2]))
    for shape in ([3, 2], [2, 3]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"keys.shape"):
            upsert(tf.constant([1, 2], tf.int64), tf.ones(shape))
    assert int(table.size()) == 1


@pytest.mark.parametrize("shards", [[0, 2], [-1, 0], [0, 7]])
def test_a_partitioner_out_of_range(shards):
    wrong = next(shard for shard in shards if not 0 <= shard < 2)
    table = de.Variable(
        dim=1,
        devices=["/CPU:0"] * 2,
        partitioner=lambda keys, n: tf.constant(shards),  # noqa: ARG005
    )
    with pytest.raises(ValueError, match=rf"shards in \[0, 2\).* Received: shard={wrong}"):
        table.lookup([1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shards in \[0, 2\)"):
        tf.function(table.lookup)(tf.constant([1, 2], tf.int64))


def test_a_partitioner_that_returns_no_integers():
    table = de.Variable(
        dim=1,
        devices=["/CPU:0"] * 2,
        partitioner=lambda keys, n: tf.zeros([2]),  # noqa: ARG005
    )
    with pytest.raises(ValueError, match="one integer per key"):
        table.lookup([1, 2])


@pytest.mark.parametrize("in_function", [False, True])
def test_a_dense_gradient_of_a_table(in_function):
    table, dense = de.Variable(dim=2, name="t"), tf.Variable(1.0)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))

    def step(rows):
        pairs = [(tf.ones([rows, 2]), table.trainable_variables[0]), (tf.constant(1.0), dense)]
        optimizer.apply_gradients(pairs)

    step = tf.function(step) if in_function else step
    with pytest.raises(TypeError, match=r"must be the tf.IndexedSlices.*shape=\(3, 2\).*'t'"):
        step(3)
    assert float(dense) == 1.0
    step(0)  # empty, like the gradient of a table that a branch does not use
    assert float(dense) == 0.0
    assert int(table.size()) == 0


def test_embedding_lookup_of_something_else():
    with pytest.raises(TypeError, match=r"`params` must be a de\.Variable"):
        de.embedding_lookup(tf.Variable([[1.0]]), [0])
