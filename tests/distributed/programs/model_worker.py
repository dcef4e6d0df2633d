"""A worker of TensorFlow 1 that trains models over tables and over dense variables.

Its servers are threads of the same process. Argument: "v1" for `disable_v2_behavior`. Prints for
each model the largest relative difference between tables and dense variables, and how far training
moved the rows.
"""

import json
import sys

import numpy as np
import tensorflow as tf

import de_core as de
from tests.support.ports import held_ports

ROWS, DIM, BATCH, WIDTH, STEPS = 24, 4, 6, 5, 3
KEY_DTYPES = {"users": tf.int64, "items": tf.string}
START = {
    name: np.random.default_rng(number).normal(size=[ROWS, DIM]).astype(np.float32)
    for number, name in enumerate(KEY_DTYPES)
}


def batch_of(step):
    """Returns row numbers, int64 [BATCH, WIDTH]. 0 means no row, except in column 0."""
    ids = np.random.default_rng(step).integers(0, ROWS, [BATCH, WIDTH])
    ids[:, 0] = 1 + ids[:, 0] // 2
    return ids


def start_of(name, shape):
    """Returns the initial value of a dense layer's variable."""
    return np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)


def relative_difference(found, wanted):
    """Returns the largest difference of two arrays, divided by `wanted` where that is above 1."""
    return float((np.abs(found - wanted) / np.maximum(1, np.abs(wanted))).max())


def keys_of(numbers, name):
    """Returns row numbers, dense or sparse, as keys of a table."""
    if isinstance(numbers, tf.SparseTensor):
        return tf.SparseTensor(numbers.indices, keys_of(numbers.values, name), numbers.dense_shape)
    return tf.strings.as_string(numbers) if KEY_DTYPES[name] == tf.string else numbers


class TableRows:
    """Lookups in tables by row numbers."""

    def __init__(self, tables):
        self._tables = tables

    def plain(self, name, ids):
        return de.embedding_lookup(self._tables[name], keys_of(ids, name))

    def unique(self, name, ids):
        return de.embedding_lookup_unique(self._tables[name], keys_of(ids, name))

    def sparse(self, name, ids, weights, combiner):
        keys = keys_of(ids, name)
        return de.embedding_lookup_sparse(self._tables[name], keys, weights, combiner=combiner)

    def safe(self, name, ids, combiner):
        keys = keys_of(ids, name)
        return de.safe_embedding_lookup_sparse(self._tables[name], keys, combiner=combiner)


class DenseRows:
    """Lookups as in `TableRows`, but in dense variables."""

    def __init__(self, variables):
        self._variables = variables

    def plain(self, name, ids):
        return tf.gather(self._variables[name], ids)

    unique = plain

    def sparse(self, name, ids, weights, combiner):
        return tf.nn.embedding_lookup_sparse(self._variables[name], ids, weights, combiner=combiner)

    def safe(self, name, ids, combiner):
        return tf.nn.safe_embedding_lookup_sparse(self._variables[name], ids, combiner=combiner)


def towers(rows, dense, ids):
    """Scores users against items. Looks up both with `embedding_lookup_unique`."""
    users = tf.matmul(rows.unique("users", ids[:, 0]), dense("towers", [DIM, DIM]))
    items = tf.reshape(rows.unique("items", ids), [-1, DIM])
    negatives = tf.gather(items, [0, 7, 7, 12, 20, 29])
    scores = tf.matmul(users, negatives, transpose_b=True)
    labels = tf.range(BATCH)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)


def pooled(rows, dense, ids):
    """Pools sparse ids of several features, for dense layers with dropout."""
    seen = tf.sparse.from_dense(ids)
    weights = tf.SparseTensor(
        seen.indices, tf.cast(seen.values, tf.float32) / ROWS + 0.5, seen.dense_shape
    )
    features = [
        rows.sparse("users", seen, weights, "mean"),
        rows.sparse("items", seen, None, "sum"),
        rows.safe("users", seen, "sqrtn"),
    ]
    hidden = tf.matmul(tf.concat(features, 1), dense("first", [3 * DIM, 8]))
    hidden = tf.nn.relu(hidden + dense("bias", [8]))
    hidden = tf.nn.experimental.stateless_dropout(hidden, 0.5, seed=[1, 2])
    return tf.matmul(hidden, dense("second", [8, 1])) ** 2


def sequence(rows, dense, ids):
    """Attends over a sequence, and slices it."""
    steps = rows.plain("items", ids)
    attention = tf.nn.softmax(tf.matmul(steps, steps, transpose_b=True))
    ends = tf.gather(tf.matmul(attention, steps), [0, WIDTH - 1], axis=1)
    even = tf.boolean_mask(steps, tf.equal(ids % 2, 0))
    users = rows.plain("users", tf.reshape(ids, [-1]))
    sums = tf.math.unsorted_segment_sum(tf.gather(users, tf.range(0, 30, 2)), [0, 1, 2] * 5, 3)
    parts = [tf.reshape(each, [-1, DIM]) for each in (ends, even, sums)]
    return tf.matmul(tf.concat(parts, 0), dense("sequence", [DIM, 1])) ** 2


def branches(rows, dense, ids):
    """Looks up ids in a branch and gathers from the branch's result."""
    found = tf.cond(
        tf.reduce_sum(ids) % 2 > 0,
        lambda: rows.plain("users", ids[:, 0]) * 2.0,
        lambda: rows.unique("users", ids[:, 1]),
    )
    return tf.gather(found, [0, 0, 3]) * dense("branches", [DIM])


MODELS = (towers, pooled, sequence, branches)


tf1 = tf.compat.v1
SERVERS = 2
if sys.argv[1] == "v1":
    tf1.disable_v2_behavior()
addresses = [f"127.0.0.1:{port}" for port in held_ports(SERVERS + 1)]
cluster = tf.train.ClusterSpec({"ps": addresses[:SERVERS], "worker": addresses[SERVERS:]})
servers = [tf1.train.Server(cluster, "ps", task) for task in range(SERVERS)]
worker = tf1.train.Server(cluster, "worker", 0)
setter = tf1.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")
places = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(SERVERS)]


def trained(model, target, device, devices):
    """Returns losses, rows and dense variables of a few steps."""
    with tf.Graph().as_default(), tf1.device(device):
        fed = tf1.placeholder(tf.int64, batch_of(0).shape)
        variables = {}

        def dense(name, shape):
            variables[name] = tf1.get_variable(name, initializer=start_of(name, shape))
            return variables[name]

        optimizer = tf1.train.AdagradOptimizer(0.1)
        if devices is None:
            found = {
                name: tf1.get_variable(name, initializer=start) for name, start in START.items()
            }
            rows, fill = DenseRows(found), tf.no_op()
        else:
            optimizer = de.DynamicEmbeddingOptimizer(optimizer)
            tables = {
                name: de.get_variable(name, key_dtype=dtype, dim=4, devices=devices)
                for name, dtype in KEY_DTYPES.items()
            }
            numbers = tf.range(ROWS, dtype=tf.int64)
            fill = [tables[name].upsert(keys_of(numbers, name), START[name]) for name in tables]
            found = {name: tables[name].lookup(keys_of(numbers, name)) for name in tables}
            rows = TableRows(tables)
        loss = tf.reduce_mean(model(rows, dense, fed))
        train = optimizer.minimize(loss)
        start = tf1.global_variables_initializer()
        with tf1.Session(target) as session:
            session.run(start)
            session.run(fill)
            losses = [session.run([loss, train], {fed: batch_of(step)})[0] for step in range(STEPS)]
            return session.run({**found, **variables}) | {"losses": np.array(losses)}


result = {}
for model in MODELS:
    wanted = trained(model, "", None, None)
    found = trained(model, worker.target, setter, places)
    result[model.__name__] = {
        "difference": max(relative_difference(found[name], wanted[name]) for name in wanted),
        "moved": max(float(np.abs(found[name] - START[name]).max()) for name in START),
    }
print("RESULT", json.dumps(result), flush=True)
