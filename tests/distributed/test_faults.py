"""A TensorFlow 1 worker trains while one of its two servers is slow, unreachable or dead."""

import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.distributed.support.processes import PROGRAMS, result_of
from tests.distributed.support.proxy import Proxy

tf1 = tf.compat.v1
IDS = np.arange(64)
_kept = []
pytestmark = pytest.mark.slow


class Training:
    """A table on two server processes, the second behind a proxy, and a session that trains it."""

    def __init__(self, processes):
        self.processes = processes
        ports = [int(address.rpartition(":")[2]) for address in processes.jobs["ps"]]
        processes.serve_all("ps")
        self.proxy = Proxy(ports[1])
        addresses = {
            "ps": [f"127.0.0.1:{ports[0]}", f"127.0.0.1:{self.proxy.port}"],
            "worker": processes.jobs["worker"],
        }
        self.server = tf1.train.Server(tf.train.ClusterSpec(addresses), "worker", 0)
        with tf.Graph().as_default(), tf1.device("/job:worker/task:0"):
            devices = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(2)]
            table = de.get_variable("users", dim=2, devices=devices, initializer=0.0)
            [rows] = de.embedding_lookup_many([table], [tf.constant(IDS)])
            optimizer = de.DynamicEmbeddingOptimizer(tf1.train.GradientDescentOptimizer(1.0))
            self.train = optimizer.minimize(-tf.reduce_sum(rows))
            self.rows = table.lookup(IDS)
            start = tf1.global_variables_initializer()
            self.session = tf1.Session(self.server.target)
            for name in ("ps_0", "ps_1"):
                processes.wait_until_printed(name, "is ready")
            self.session.run(start)

    def steps(self, count, seconds=None):
        options = None if seconds is None else tf1.RunOptions(timeout_in_ms=int(seconds * 1000))
        for _ in range(count):
            self.session.run(self.train, options=options)

    def found(self):
        """Returns the rows. Each value is the number of steps that have updated it."""
        return self.session.run(self.rows)

    def stop(self):
        self.proxy.stop()
        _kept.append(self.session)  # closing it would wait for missing servers


@pytest.fixture
def training(cluster):
    made = Training(cluster(ps=2, worker=1))
    yield made
    made.stop()


def test_a_server_ten_times_as_slow_loses_nothing(training):
    training.steps(60)
    server = training.processes.processes["ps_1"]
    done = threading.Event()

    def slow_down():
        while not done.is_set():
            server.send_signal(signal.SIGSTOP)
            time.sleep(0.09)
            server.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    slowing = threading.Thread(target=slow_down)
    slowing.start()
    try:
        training.steps(40)
    finally:
        done.set()
        slowing.join()
    assert (training.found() == 100).all()


def test_a_server_that_is_cut_off_is_waited_for_or_times_out(training):
    training.steps(10)
    training.proxy.hold()
    with pytest.raises(tf.errors.DeadlineExceededError):
        training.steps(1, seconds=3)
    # Without a timeout a step waits without limit. It cannot end before the release.
    threading.Timer(5, training.proxy.release).start()
    training.steps(5)
    # The timed-out step may have run on one server, on both servers or on no server.
    assert set(np.unique(training.found())) <= {15, 16}


def test_a_server_that_is_gone_is_an_error(training):
    training.steps(10)
    training.processes.processes["ps_1"].kill()
    with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError)):
        training.steps(3)


@pytest.mark.parametrize("victim", ["worker_1", "ps_1"])
def test_a_coordinator_survives_a_killed_worker_and_fails_without_a_server(
    cluster, tmp_path, victim
):
    processes = cluster(chief=1, ps=2, worker=2)
    processes.serve_all("ps", "worker")
    go = tmp_path / "go"
    processes.start("chief", PROGRAMS / "scheduling_chief.py", go)
    processes.wait_until_printed("chief", "waiting")
    processes.processes[victim].kill()
    go.touch()
    found = result_of(processes.finish("chief"))
    if victim == "worker_1":
        # The other worker does all steps. It may repeat the killed worker's step.
        assert found["error"] is None
        assert found["steps"] <= found["least"] <= found["most"] <= found["steps"] + 2
    else:
        assert found["error"] in ("UnavailableError", "AbortedError")


def test_workers_in_step_fail_when_one_of_them_is_gone(cluster):
    processes = cluster(worker=2)
    for name in processes.start_workers(PROGRAMS / "lasting_worker.py"):
        processes.wait_until_printed(name, "training")
    processes.processes["worker_1"].kill()
    found = result_of(processes.finish("worker_0"))
    assert found["error"] in ("UnavailableError", "AbortedError", "InternalError")
