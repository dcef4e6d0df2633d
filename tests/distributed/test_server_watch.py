"""Tests how long a process waits for a silent server, and its message when it gives up."""

import queue
import signal as signals
import socket
import time

import pytest
import tensorflow as tf

import de_core as de
from tests.distributed.support.processes import PROGRAMS
from tests.distributed.support.proxy import Proxy
from tests.server.support.eventually import wait_until
from tests.support.ports import held_ports

EXIT_CODE = de.distributed.ServerWatch.EXIT_CODE
SECONDS = 8


@pytest.fixture(scope="module")
def live_port():
    [port] = held_ports(1)
    spec = tf.train.ClusterSpec({"ps": [f"localhost:{port}"]})
    server = tf.compat.v1.train.Server(spec, "ps", 0)
    yield port
    del server


def test_the_silent_servers_are_named_with_the_remedy(live_port):
    deaf = socket.create_server(("127.0.0.1", 0))  # accepts connections, like a stopped process
    [nobodys] = held_ports(1)
    ports = (live_port, deaf.getsockname()[1], nobodys)
    cluster = {"ps": [f"localhost:{port}" for port in ports], "worker": ["localhost:1"]}
    lost = queue.Queue()
    with de.distributed.ServerWatch(cluster, seconds=4, on_lost=lost.put) as watch:
        error = lost.get(timeout=60)
        assert isinstance(error, tf.errors.UnavailableError)
        assert "must answer within 4 s" in error.message
        assert f"/job:ps/task:1 at localhost:{ports[1]} (" in error.message
        assert f"/job:ps/task:2 at localhost:{ports[2]} (UNAVAILABLE" in error.message
        assert "python -m de_core.parameter_server --job ps --task 2)" in error.message
        assert "task:0" not in error.message
        assert "worker" not in error.message
        silence = watch.silence()
        assert silence["/job:ps/task:0"] < 4 <= silence["/job:ps/task:1"]
    assert lost.empty()
    deaf.close()


def test_a_server_that_is_back_in_time_is_told_of_and_nothing_else(live_port, caplog):
    proxy, lost = Proxy(live_port), queue.Queue()
    cluster = {"ps": [f"localhost:{proxy.port}"]}
    with de.distributed.ServerWatch(cluster, seconds=20, on_lost=lost.put):
        proxy.hold()
        wait_until(lambda: "has been silent" in caplog.text)
        proxy.release()
        wait_until(lambda: "answers again" in caplog.text)
    proxy.stop()
    assert "waits for it for 20 s" in caplog.text
    assert lost.empty()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, "Received: seconds=0"),
        ({"jobs": ["ps", "chief"]}, "of the cluster: ps, worker. Received: jobs="),
        ({"jobs": []}, "Received: jobs="),
    ],
)
def test_a_watch_without_servers_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        de.distributed.ServerWatch({"ps": ["a:1"], "worker": ["b:1"]}, **arguments)


def start_training(processes, tmp_path):
    """Starts a monitored worker that waits at most `SECONDS` for a server."""
    arguments = (0, tmp_path / "saved", 0, tmp_path / "never", SECONDS)
    processes.start("worker_0", PROGRAMS / "session_worker.py", *arguments)


def ended(processes, name):
    """Waits until the watch ends a process; returns its last words."""
    code = processes.processes[name].wait(300)
    [said] = [each for each in processes.output(name).splitlines() if "must answer" in each]
    assert code == EXIT_CODE
    assert said.endswith(f"ends with exit code {EXIT_CODE}.")
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal", "victims"), [("kill", [1]), ("kill", [0, 1]), ("stop", [0]), ("kill", [0])]
)
def test_a_monitored_session_ends_when_a_server_stays_away(cluster, tmp_path, signal, victims):
    processes = cluster(ps=2, worker=1)
    names = processes.serve_all("ps")
    start_training(processes, tmp_path)
    processes.wait_until_printed("worker_0", "STEP")
    for task in victims:
        process = processes.processes[names[task]]
        process.kill() if signal == "kill" else process.send_signal(signals.SIGSTOP)
    said = ended(processes, "worker_0")
    for task in range(2):
        assert (f"/job:ps/task:{task}" in said) == (task in victims)


@pytest.mark.slow
def test_a_monitored_session_ends_when_a_server_never_comes_up(cluster, tmp_path):
    processes = cluster(ps=2, worker=1)
    processes.serve("ps", 0)
    processes.wait_until_printed("ps_0", "is ready")
    start_training(processes, tmp_path)
    said = ended(processes, "worker_0")
    assert "/job:ps/task:1 at" in said
    assert "task:0" not in said


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False])
def test_a_coordinator_ends_when_a_server_stops_or_never_comes_up(cluster, tmp_path, stopped):
    processes = cluster(chief=1, ps=2, worker=1)
    for job, task in (("ps", 0), ("ps", 1), ("worker", 0))[: 3 if stopped else 1]:
        processes.serve(job, task)
    processes.start("chief", PROGRAMS / "scheduling_chief.py", tmp_path / "go", SECONDS)
    if stopped:
        processes.wait_until_printed("chief", "waiting")
        processes.processes["ps_1"].send_signal(signals.SIGSTOP)
        (tmp_path / "go").touch()
    said = ended(processes, "chief")
    assert "/job:ps/task:1 at" in said
    assert "task:0" not in said


@pytest.mark.slow
def test_time_in_which_the_watching_process_itself_was_stopped_hardly_counts(cluster, tmp_path):
    processes = cluster(ps=2, worker=1)
    processes.serve_all("ps")
    start_training(processes, tmp_path)
    processes.wait_until_printed("worker_0", "STEP")
    worker = processes.processes["worker_0"]
    worker.send_signal(signals.SIGSTOP)
    time.sleep(SECONDS + 4)
    worker.send_signal(signals.SIGCONT)
    (tmp_path / "never").touch()
    processes.finish("worker_0")
