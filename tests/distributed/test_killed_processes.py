"""TensorFlow 1 workers in monitored sessions go on while processes of the cluster are killed."""

import time

import pytest
import tensorflow as tf

from tests.distributed.support.processes import PROGRAMS, result_of
from tests.distributed.support.steps import steps_of, wait_for_steps

WORKERS = ("worker_0", "worker_1")
pytestmark = pytest.mark.slow


@pytest.fixture
def training(cluster, tmp_path):
    """Starts two servers and two workers without a step limit; returns when they train."""

    def start():
        processes = cluster(ps=2, worker=2)
        processes.serve_all("ps")
        for task, name in enumerate(WORKERS):
            arguments = (task, tmp_path / "saved", 0, tmp_path / "enough")
            processes.start(name, PROGRAMS / "session_worker.py", *arguments)
        for name in WORKERS:
            wait_for_steps(processes, name, 20)
        return processes

    return start


def killed(processes, name):
    processes.processes[name].kill()
    processes.processes[name].wait()
    return time.monotonic()


def test_workers_wait_for_a_server_that_was_killed_and_see_no_empty_table(training, tmp_path):
    processes = training()
    gone = killed(processes, "ps_1")
    restored = int(tf.train.latest_checkpoint(str(tmp_path / "saved")).rpartition("-")[2])
    time.sleep(10)
    for name in WORKERS:
        assert processes.processes[name].poll() is None
        # A step needs both servers, so only the step that was under way may still end.
        assert sum(when > gone for when, _, _ in steps_of(processes, name)) <= 1
    processes.output_file("ps_1").unlink()
    processes.serve("ps", 1)
    processes.wait_until_printed("ps_1", "is ready")
    for name in WORKERS:
        wait_for_steps(processes, name, 20, gone + 1)
    (tmp_path / "enough").touch()
    for name in WORKERS:
        found = result_of(processes.finish(name))
        assert found["step"] > restored
        assert sum(found["sizes"]) == len(found["rows"])
        for when, step, most in steps_of(processes, name):
            # Each step subtracts at least 1 from each row. The last step may still be running.
            assert most <= 0.5 - (step - 2)
            if when > gone + 1:
                assert most <= 0.5 - (restored - 2)


@pytest.mark.parametrize("victim", WORKERS)
def test_a_worker_goes_on_without_the_other_one(training, tmp_path, victim):
    processes = training()
    [other] = set(WORKERS) - {victim}
    gone = killed(processes, victim)
    before = steps_of(processes, other)[-1][1]
    wait_for_steps(processes, other, 40, gone)
    (tmp_path / "enough").touch()
    assert result_of(processes.finish(other))["step"] >= before + 40
