"""A Redis Cluster moves its slots, or loses a master, while rows are trained and read."""

import re
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.server.support.eventually import wait_until
from tests.storage import servers
from tests.storage.servers import creator_for

ROWS = 300
pytestmark = pytest.mark.slow


#: Detects a lost master within a second.
QUICK = ("--cluster-node-timeout", "1000")


@pytest.fixture
def nodes(start):
    return servers.cluster(start, *QUICK)


def identity(node):
    return node.command("cluster", "myid")


def test_no_update_is_lost_while_slots_move(nodes):
    table = de.Variable(dim=2, name="moved", kv_creator=creator_for(nodes))
    table.upsert(range(ROWS), tf.zeros([ROWS, 2]))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    gradient = tf.IndexedSlices(-tf.ones([ROWS, 2]), tf.range(ROWS, dtype=tf.int64))
    moved = threading.Event()

    def move():
        try:
            servers.cli(
                *("--cluster", "reshard", f"127.0.0.1:{nodes[0].port}", "--cluster-yes"),
                *("--cluster-from", identity(nodes[0]), "--cluster-to", identity(nodes[1])),
                *("--cluster-slots", 5000, "--cluster-pipeline", 10),
            )
        finally:
            moved.set()

    moving = threading.Thread(target=move)
    moving.start()
    steps = 0
    while not moved.is_set() or steps < 10:
        optimizer.apply([gradient], [table])
        steps += 1
        np.testing.assert_array_equal(table.lookup(range(ROWS)), np.full([ROWS, 2], steps))
    moving.join()
    slots = re.search(r"cluster_slots_assigned:(\d+)", nodes[1].command("cluster", "info"))
    assert int(slots[1]) == 16384
    assert steps >= 10


def test_a_lost_master_is_counted_errors_until_its_replica_takes_over(nodes, start):
    replica = start(*servers.NODE, *QUICK)
    servers.cli(
        *("--cluster", "add-node", f"127.0.0.1:{replica.port}", f"127.0.0.1:{nodes[0].port}"),
        *("--cluster-slave", "--cluster-master-id", identity(nodes[0])),
    )
    table = de.Variable(
        dim=2,
        name="failover",
        kv_creator=creator_for(nodes, redis_socket_timeout=500, redis_connect_timeout=500),
    )
    table.upsert(range(ROWS), tf.ones([ROWS, 2]))
    wait_until(lambda: "master_link_status:up" in replica.command("info", "replication"))
    wait_until(lambda: replica.command("dbsize") == nodes[0].command("dbsize"))
    refused = []

    def reads():
        try:
            rows = table.lookup(range(ROWS)).numpy()
        except tf.errors.UnavailableError as error:
            refused.append(re.search(rf"(\d+) of {ROWS} keys could not be read", str(error))[1])
            return False
        # A lookup that cannot read a row must raise an error, not return zeros.
        np.testing.assert_array_equal(rows, np.ones([ROWS, 2]))
        return True

    nodes[0].stop()
    wait_until(lambda: reads() and reads() and reads())  # a replica takes over
    assert refused
    assert all(0 < int(lost) < ROWS for lost in refused)
    table.upsert(range(ROWS), tf.fill([ROWS, 2], 2.0))
    np.testing.assert_array_equal(table.lookup(range(ROWS)), np.full([ROWS, 2], 2.0))
