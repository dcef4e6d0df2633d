"""Tests tables on parameter servers: two servers and two workers, each a process."""

import ctypes
import json
import os
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.distributed.support.processes import PROGRAMS, ROOT, result_of

IDS = 40


def expected_rows(steps):
    gradient = np.ones([IDS, 1])
    gradient[1:3, 0] += [2, 1]
    return np.tile(0.5 - steps * gradient, [1, 2])


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_sessions_train_tables_on_servers_and_lose_no_update(cluster, tmp_path):
    processes = cluster(ps=2, worker=2)
    servers = [
        processes.serve("ps", task, "--http-port", 0, "--grace-seconds", 20) for task in range(2)
    ]
    for task in range(2):
        program = PROGRAMS / "session_worker.py"
        processes.start(f"worker_{task}", program, task, tmp_path / "saved", 12, "")
    for task in range(2):
        found = result_of(processes.finish(f"worker_{task}"))
        assert found["step"] == 24
        assert sum(found["sizes"]) == IDS
        assert min(found["sizes"]) > IDS / 4
        np.testing.assert_array_equal(found["rows"], expected_rows(24))

    # Each server wrote its own file. Any number of shards can read the files.
    saved = tf.train.latest_checkpoint(str(tmp_path / "saved"))
    here = de.Variable(dim=2, name="users", devices=["/CPU:0"] * 3, initializer=0.5)
    assert de.checkpoint.restore(here, saved) == {"users": IDS}
    steps = 0.5 - here.lookup([0]).numpy()[0, 0]
    assert 20 <= steps <= 24
    np.testing.assert_array_equal(here.lookup(range(IDS)), expected_rows(steps))

    printed = processes.output(servers[0])
    port = int(printed.split("health at :")[1].split("/")[0])
    assert get(port, "/healthz") == (200, "ready\n")
    assert 'de_server_ready{job="ps",task="0"} 1' in get(port, "/metrics")[1]
    metrics = get(port, "/metrics")[1]
    rows = re.search(r'de_table_rows\{job="ps",task="0",table="users_mht_1of2"\} (\d+)', metrics)
    assert int(rows[1]) == found["sizes"][0]
    assert int(re.search(r"de_table_bytes\{.*\} (\d+)", metrics)[1]) > 0
    assert get(port, "/")[0] == 404
    # The system may deliver a signal to any thread. Python runs handlers only in the main thread.
    pid = processes.processes[servers[0]].pid
    thread = max(int(each.name) for each in Path(f"/proc/{pid}/task").iterdir())
    assert ctypes.CDLL(None).tgkill(pid, thread, signal.SIGTERM) == 0
    while (answer := get(port, "/healthz"))[0] == 200:
        pass
    assert answer == (503, "stopping\n")
    assert "ps 0 at" in processes.finish(servers[0])


def test_a_server_is_ready_alone_and_says_so(cluster):
    processes = cluster(ps=1, worker=1)
    server = processes.serve("ps", 0, "--http-port", 0)
    port = int(
        processes.wait_until_printed(server, "health at :").split("health at :")[1].split("/")[0]
    )
    assert get(port, "/healthz") == (200, "ready\n")
    assert 'de_server_ready{job="ps",task="0"} 1' in get(port, "/metrics")[1]


@pytest.mark.slow
def test_a_coordinator_trains_tables_on_servers_to_the_numbers_of_one_process(cluster, tmp_path):
    processes = cluster(chief=1, ps=2, worker=2)
    # By default TensorFlow's servers wait for each other forever on one core.
    one_core = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    processes.serve_all("ps", "worker", inside=one_core)
    processes.start("chief", PROGRAMS / "coordinator.py", tmp_path / "saved")
    found = result_of(processes.finish("chief"))
    assert found["difference"] < 1e-6
    assert found["export_difference"] == 0
    assert found["exported"] == sum(found["sizes"])
    assert len(list((tmp_path / "saved_model" / "1" / "assets").glob("users_mht_?of2*.de"))) == 2
    assert min(found["sizes"]) > 10
    here = de.Variable(dim=2, name="users", devices=["/CPU:0"] * 3)
    assert de.checkpoint.restore(here, tmp_path / "saved") == {"users": sum(found["sizes"])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shards"),
    [([], 1), (["--servers", "2", "--workers", "1"], 2), (["--in-step", "2"], 1)],
)
def test_the_example_trains_in_one_process_and_in_several(run_python, monkeypatch, options, shards):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    source = """
        import runpy, sys
        sys.argv = ["train.py", "--steps", "60", *sys.argv[1:]]
        runpy.run_path("examples/cluster/train.py", run_name="__main__")
    """
    [line] = [each for each in run_python(source, *options).splitlines() if "steps/s" in each]
    first, last = map(float, re.findall(r"\d\.\d{5}", line))
    assert last < 0.9 * first
    assert len(json.loads(line.partition("rows ")[2])) == shards
