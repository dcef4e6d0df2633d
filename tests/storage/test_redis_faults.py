"""Rows in Redis while servers, passwords and networks fail."""

import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import redis
import tensorflow as tf

import de_core as de
from de_core.storage.redis.connection import Connection
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import tls_files
from tests.storage import servers
from tests.storage.servers import creator_for

QUICK = {"redis_retries": 1}


def filled(creator, rows=10):
    table = de.Variable(dim=2, name="f", kv_creator=creator)
    table.upsert(range(rows), tf.ones([rows, 2]))
    return table


def test_a_server_that_is_gone_is_an_error_and_comes_back(start):
    own_server = start()
    table = filled(creator_for([own_server], **QUICK))
    own_server.stop()
    with pytest.raises(tf.errors.UnavailableError, match="10 of 10 keys could not be read, of"):
        table.lookup(range(10))
    with pytest.raises(tf.errors.UnavailableError, match="3 of 3 keys could not be written, of"):
        table.upsert([1, 2, 3], tf.zeros([3, 2]))
    with pytest.raises(Exception, match="2 of 2 keys could not be read, of"):
        tf.function(table.lookup)(tf.constant([1, 2], tf.int64))
    own_server.start()
    table.clear()  # the server comes back without rows, which is an error until then
    table.upsert([1], [[5.0, 5.0]])
    np.testing.assert_array_equal(table.lookup([1]), [[5.0, 5.0]])


def test_a_server_that_hangs_is_an_error_after_few_waits(start, monkeypatch):
    own_server, waits, read = start(), [], redis.Connection.read_response

    def counting(self, *arguments, **options):
        try:
            return read(self, *arguments, **options)
        except redis.TimeoutError:
            waits.append(self.socket_timeout)
            raise

    monkeypatch.setattr(redis.Connection, "read_response", counting)
    table = filled(creator_for([own_server], redis_socket_timeout=1000, **QUICK))
    own_server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(tf.errors.UnavailableError, match="within 1000 ms"):
        table.lookup(range(10))
    # All ten keys together, the first key alone, and its retry.
    assert waits == [1.0] * 3
    own_server.process.send_signal(signal.SIGCONT)
    np.testing.assert_array_equal(table.lookup([1]), [[1.0, 1.0]])


def test_an_unreachable_server_raises():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen, and nobody else gets its port
        config = {"redis_connection_mode": 2, "redis_host_port": [silent.getsockname()[1]], **QUICK}
        creator = de.RedisTableCreator(de.RedisTableConfig(params=config))
        with pytest.raises(tf.errors.UnavailableError, match="Connection refused"):
            de.Variable(dim=2, kv_creator=creator)


def test_keys_of_a_lost_node_are_counted_and_others_are_read(start):
    nodes = servers.cluster(start)
    table = filled(creator_for(nodes, **QUICK), 300)
    nodes[0].stop()
    with pytest.raises(tf.errors.UnavailableError) as raised:
        table.lookup(range(300))
    lost = int(re.search(r"(\d+) of 300 keys could not be read", str(raised.value))[1])
    assert 0 < lost < 300
    read = 0
    for key in range(0, 300, 10):
        try:
            np.testing.assert_array_equal(table.lookup([key]), [[1.0, 1.0]])
            read += 1
        except tf.errors.UnavailableError:
            pass
    assert 0 < read < 30


def test_a_row_and_its_slots_lie_on_one_node_and_rows_on_all(cluster):
    creator = creator_for(cluster)
    tag = creator.config.settings.model_tag_runtime
    table = filled(creator, 300)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
    optimizer.apply([tf.IndexedSlices(tf.ones([300, 2]), tf.range(300, dtype=tf.int64))], [table])
    slices = {}
    for node in cluster:
        for key in node.command("keys", f"*{tag}*").split():
            if key.endswith((":value", "/m#2#0.0", "/v#2#0.0")):
                slices.setdefault(key[: key.index("}")], []).append((node.port, key))
    assert len(slices) == 32
    assert {len(keys) for keys in slices.values()} == {3}
    assert all(len({port for port, _ in keys}) == 1 for keys in slices.values())
    assert {port for keys in slices.values() for port, _ in keys} == {n.port for n in cluster}


def test_concurrent_steps_of_several_clients_all_count(server):
    creator = creator_for([server])
    keys, steps = list(range(20)), 15

    def add(_):
        table = de.Variable(dim=2, name="together", kv_creator=creator)
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
        for _ in range(steps):
            gradient = tf.IndexedSlices(-tf.ones([20, 2]), tf.constant(keys, tf.int64))
            optimizer.apply([gradient], [table])
            table.accum(keys, tf.zeros([20, 2]), tf.ones([20, 2]))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(add, range(3)))
    total = de.Variable(dim=2, name="together", kv_creator=creator).lookup(keys)
    np.testing.assert_array_equal(total, np.full([20, 2], 2.0 * 3 * steps))


def test_an_update_whose_answer_was_lost_is_not_done_twice(server, monkeypatch):
    run = Connection.run

    def twice(self, commands):
        run(self, commands)
        return run(self, commands)

    monkeypatch.setattr(Connection, "run", twice)
    table = de.Variable(dim=2, name="twice", kv_creator=creator_for([server]))
    for _ in range(3):
        table.accum([1, 2], tf.zeros([2, 2]), tf.ones([2, 2]))
    np.testing.assert_array_equal(table.lookup([1, 2]), np.full([2, 2], 3.0))


def test_a_save_reads_a_row_and_its_slots_at_one_moment(server, tmp_path, monkeypatch):
    table = de.Variable(dim=1, name="moment", kv_creator=creator_for([server]))
    # After n steps the momentum is -n and the value is -n (n + 1) / 2.
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0, momentum=1.0))
    run, steps = Connection.run, []

    def step():
        steps.append(True)
        gradient = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([7], tf.int64))
        optimizer.apply([gradient], [table])
        steps.pop()

    def stepping(self, commands):
        answers = []
        for command in commands:
            answers += run(self, [command])
            if not steps:
                step()
        return answers

    step()
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "run", stepping)
        de.checkpoint.save(table, tmp_path)
    de.checkpoint.restore(table, tmp_path)
    [slot] = table.get_slot_variables(optimizer)
    count = -float(slot.lookup([7])[0, 0])
    assert count > 1
    assert float(table.lookup([7])[0, 0]) == -count * (count + 1) / 2


def test_a_forked_process_has_calls_of_its_own(server, run_python):
    said = run_python(
        """
        import os, sys
        import de_core as de
        from de_core.storage.redis.store import RedisStore

        params = {"redis_connection_mode": 2, "redis_host_port": [int(sys.argv[1])]}
        store = RedisStore("forked", de.RedisTableConfig(params=params).settings)
        store.describe("{}")
        store.write([b"key"], {store.VALUE: [b"0"]})
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        old, new = (b"1", b"2") if child else (b"0", b"1")
        done = store.swap([b"key"], {store.VALUE: [old]}, {store.VALUE: [new]})
        if not child:
            os._exit(0)
        print(done, store.read([store.VALUE], [b"key"]))
        """,
        server.port,
    )
    assert said.split("\n")[-2] == "[True] [[b'2']]"


def test_passwords_are_sent_and_wrong_ones_told(start):
    server = start("--requirepass", "secret")
    filled(creator_for([server], redis_password="secret"))
    for password in ("", "wrong"):
        with pytest.raises(tf.errors.UnavailableError, match=r"Auth|NOAUTH|WRONGPASS"):
            filled(creator_for([server], redis_password=password))


def test_tls_checks_the_server(start, tmp_path):
    certificate, key = map(str, tls_files(tmp_path))
    tls = ["--tls-port", "{port}", "--port", "0", "--tls-cert-file", certificate]
    tls += ["--tls-key-file", key, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no"]
    server = start(*tls)
    trusting = {"redis_use_tls": True, "redis_tls_ca_file": certificate}
    filled(creator_for([server], **trusting))
    with pytest.raises(tf.errors.UnavailableError, match=r"(?i)certificate"):
        filled(creator_for([server], redis_use_tls=True, **QUICK))
    with pytest.raises(tf.errors.UnavailableError):
        filled(creator_for([server], **QUICK))


def test_a_sentinel_names_the_new_master(start, tmp_path):
    master = start()
    replica = start("--replicaof", f"127.0.0.1 {master.port}")
    file = tmp_path / "sentinel.conf"
    file.write_text(
        f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n"
    )
    sentinel = start("--sentinel", config=file)
    wait_until(lambda: "master_link_status:up" in replica.command("info", "replication"))
    waiting = {
        "redis_connection_mode": 1,
        "redis_master_name": "main",
        "redis_host_port": [sentinel.port],
        **QUICK,
        "redis_retries": 100,  # a Sentinel failover takes seconds
    }
    table = filled(de.RedisTableCreator(de.RedisTableConfig(params=waiting)))
    assert replica.command("wait", "0", "100") is not None
    wait_until(lambda: int(replica.command("dbsize")) > 0)
    wait_until(lambda: f"port={replica.port}" in master.command("info", "replication"))
    wait_until(lambda: str(replica.port) in sentinel.command("sentinel", "replicas", "main"))
    master.stop()
    table.upsert([77], [[7.0, 7.0]])
    np.testing.assert_array_equal(table.lookup([1, 77]), [[1.0, 1.0], [7.0, 7.0]])
