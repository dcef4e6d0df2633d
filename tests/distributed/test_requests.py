"""The number of tensors that a step sends to servers does not grow with features or tables."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.lookup.feature import Feature, lookup_features
from tests.support.ports import held_ports

tf1 = tf.compat.v1
SERVERS = 2
WORKER = "/job:worker/replica:0/task:0"


@pytest.fixture(scope="module")
def target():
    """A cluster of two servers and a worker, all in this process."""
    addresses = [f"127.0.0.1:{port}" for port in held_ports(SERVERS + 1)]
    cluster = tf.train.ClusterSpec({"ps": addresses[:SERVERS], "worker": addresses[SERVERS:]})
    servers = [tf1.train.Server(cluster, "ps", task) for task in range(SERVERS)]
    worker = tf1.train.Server(cluster, "worker", 0)
    yield worker.target
    del servers


def keys_of(ids, table):
    """Returns keys of the dtype of a table; strings of up to 18 bytes."""
    if table.key_dtype != tf.string:
        return tf.cast(ids, table.key_dtype)
    text = tf.strings.as_string(ids)
    return tf.where(ids % 3 == 0, text, tf.strings.join([text, "\0of some length"]))


def model(tables, features, *, remote, drawn=False, pools=False):
    """Returns the op of a step, and the rows of all tables. Some tables have another dim.

    With `pools`, the rows of each feature are pooled as in an `EmbeddingCollection`.
    """
    devices = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(SERVERS)]
    users = [
        de.get_variable(
            f"table_{number}",
            key_dtype=(tf.int64, tf.string, tf.int32)[number % 3],
            dim=2 + number % 2,
            devices=devices if remote else None,
            initializer="uniform",
        )
        for number in range(tables)
    ]
    rng = np.random.default_rng(0)
    owners = [users[feature % tables] for feature in range(features)]
    ids = [
        # To count requests, draw the ids: TensorFlow does not send constants to servers.
        keys_of(
            tf.random.uniform([3, 4], 0, 20, tf.int64)
            if drawn
            else tf.constant(rng.integers(0, 20, [3, 4])),
            each,
        )
        for each in owners
    ]
    if pools:
        combiners = itertools.cycle(["mean", "sum", None])
        rows = lookup_features(
            [
                Feature(owner, tf.RaggedTensor.from_tensor(each), combiner=combiner, max_length=3)
                for owner, each, combiner in zip(owners, ids, combiners, strict=False)
            ]
        )
    elif features == 1:
        rows = [de.embedding_lookup(owners[0], ids[0])]
    else:
        rows = de.embedding_lookup_many(owners, ids)
    weights = [tf.constant(rng.standard_normal(each.shape), tf.float32) for each in rows]
    loss = tf.add_n([tf.reduce_sum(a * b * b) for a, b in zip(rows, weights, strict=True)])
    optimizer = de.DynamicEmbeddingOptimizer(tf1.train.AdagradOptimizer(0.1))
    train = optimizer.minimize(loss)
    return train, [
        tf.convert_to_tensor(each.lookup(keys_of(tf.range(20, dtype=tf.int64), each)))
        for each in users
    ]


def crossings(target, tables, features, device, pools):
    """Returns the number of tensors per step to and from the servers."""
    with tf.Graph().as_default(), tf1.device(device):
        train, _ = model(tables, features, remote=True, drawn=True, pools=pools)
        start = tf1.global_variables_initializer()
        options = tf1.RunOptions(output_partition_graphs=True)
        metadata = tf1.RunMetadata()
        with tf1.Session(target) as session:
            session.run(start)
            session.run(train, options=options, run_metadata=metadata)
    found = collections.Counter()
    for graph in metadata.partition_graphs:
        for node in graph.node:
            if node.op == "_Recv" and node.attr["tensor_type"].type != tf.resource.as_datatype_enum:
                sent, got = (node.attr[name].s.decode() for name in ("send_device", "recv_device"))
                if "/job:ps" in sent + got and sent != got:
                    found[sent.split("/device")[0], got.split("/device")[0]] += 1
    return found


@pytest.mark.each_choice
@pytest.mark.parametrize("pools", [False, True])
@pytest.mark.parametrize("anchors_on_servers", [False, True])
def test_requests_do_not_grow_with_features_and_tables(target, anchors_on_servers, pools):
    device = WORKER
    if anchors_on_servers:
        device = tf1.train.replica_device_setter(ps_tasks=SERVERS, worker_device=WORKER)
    # A step sends a server the ids, which a lookup and its gradient share, and the gradient's
    # values. The server sends back the rows, then a tensor that tells that the update is done.
    for tables, features in ((1, 1), (1, 6), (4, 8)):
        found = crossings(target, tables, features, device, pools)
        assert len(found) == 2 * SERVERS
        for (source, _), tensors in found.items():
            most = 2
            if anchors_on_servers and source != WORKER:
                most += -(-tables // SERVERS)  # the value of each anchor, which is empty
            assert tensors <= most, (tables, features)


def check_like_one_process(target, build):
    """Trains on servers and here. `build(remote)` returns a step's op, and tensors to compare."""
    found = []
    for remote in (True, False):
        with tf.Graph().as_default(), tf1.device(WORKER if remote else None):
            train, results = build(remote)
            start = tf1.global_variables_initializer()
            with tf1.Session(target if remote else "") as session:
                session.run(start)
                for _ in range(3):
                    session.run(train)
                found.append(session.run(results))
    for there, here in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pools", [False, True])
def test_lookup_many_trains_like_single_lookups(target, pools):
    check_like_one_process(target, lambda remote: model(4, 8, remote=remote, pools=pools))


@pytest.mark.each_choice
@pytest.mark.parametrize("anchor", [WORKER, "/job:ps/replica:0/task:0"])
@pytest.mark.parametrize("servers", [[1], [0, 1]])
def test_pooled_lookups_train_as_alone_where_the_anchor_is_elsewhere(target, anchor, servers):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 8, 40))
    places = np.stack([rows, np.arange(40)], 1)
    ids, weights = rng.integers(0, 12, 40), rng.uniform(0.5, 2, 40).astype(np.float32)

    def build(remote):
        devices = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in servers]
        with tf1.device(anchor if remote else None):
            table = de.get_variable(
                "users", dim=2, devices=devices if remote else None, initializer="uniform"
            )
        if remote:
            [variable] = table.trainable_variables
            assert variable.device.startswith(anchor)
        sparse_ids = tf.SparseTensor(places, ids, [8, 40])
        sparse_weights = tf.SparseTensor(places, weights, [8, 40])
        pooled = [
            de.embedding_lookup_sparse(table, sparse_ids, sparse_weights, combiner="mean"),
            de.embedding_lookup_sparse(table, sparse_ids, None, combiner="sqrtn"),
            de.embedding_lookup_sparse(
                table, sparse_ids, sparse_weights, combiner="sum", max_norm=0.05
            ),
        ]
        loss = tf.add_n([tf.reduce_sum(each**2) for each in pooled])
        optimizer = de.DynamicEmbeddingOptimizer(tf1.train.AdagradOptimizer(0.1))
        return optimizer.minimize(loss), [tf.convert_to_tensor(table.lookup(range(12))), *pooled]

    check_like_one_process(target, build)


def test_a_missing_list_of_ids_is_refused():
    with pytest.raises(ValueError, match="Received: 1 ids for 2 Variables"):
        de.embedding_lookup_many([de.Variable(dim=1)] * 2, [[1]])
