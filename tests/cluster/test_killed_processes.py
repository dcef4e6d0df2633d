"""What workers of TensorFlow 1 in monitored sessions see of processes killed and networks cut."""

import subprocess
import time

import pytest
import tensorflow as tf

from tests.cluster.networks import Networks
from tests.cluster.processes import PROGRAMS, result_of

WORKERS = ("worker_0", "worker_1")
pytestmark = pytest.mark.slow


def steps_of(processes, name):
    """Returns what a worker has seen: when, at which step, and the greatest of all rows."""
    lines = [each.split() for each in processes.output(name).splitlines(keepends=True)]
    found = [each[1:] for each in lines if each[:1] == ["STEP"] and len(each) == 4]
    return [(float(when), int(step), float(most)) for when, step, most in found]


def wait_for_steps(processes, name, count, since=0.0, seconds=180):
    """Waits until a worker has done steps since then, and returns when the first was done."""
    end = time.monotonic() + seconds
    while True:
        times = [when for when, _, _ in steps_of(processes, name) if when > since]
        if len(times) >= count:
            return times[0]
        assert processes.processes[name].poll() is None, processes.output(name)[-3000:]
        assert time.monotonic() < end, processes.output(name)[-3000:]
        time.sleep(0.1)


@pytest.fixture
def training(cluster, tmp_path):
    """Starts two servers, and two workers that train for ever; returns when they are at it."""

    def start():
        processes = cluster(ps=2, worker=2)
        for task in range(2):
            processes.serve("ps", task)
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
        # A step asks both servers.
        assert steps_of(processes, name)[-1][0] < gone + 1
    processes.output_file("ps_1").unlink()
    processes.serve("ps", 1)
    processes.wait_until_printed("ps_1", "is ready")
    back = time.monotonic()
    waited = [wait_for_steps(processes, name, 20, gone + 1) - back for name in WORKERS]
    print("after", *(f"{each:.1f} s" for each in waited))
    assert max(waited) < 60
    (tmp_path / "enough").touch()
    for name in WORKERS:
        assert result_of(processes.finish(name))["step"] > restored
        for when, step, most in steps_of(processes, name):
            # Each step takes at least 1 from each row; the last may be on its way.
            assert most <= 0.5 - (step - 2)
            if when > gone + 1:
                assert most <= 0.5 - (restored - 2)


@pytest.mark.parametrize("victim", WORKERS)
def test_a_worker_goes_on_without_the_other_one(training, tmp_path, victim):
    processes = training()
    [other] = set(WORKERS) - {victim}
    gone = killed(processes, victim)
    before = steps_of(processes, other)[-1][1]
    waited = wait_for_steps(processes, other, 40, gone) - gone
    print(f"after {waited:.1f} s")
    assert waited < 10
    (tmp_path / "enough").touch()
    assert result_of(processes.finish(other))["step"] >= before + 40


@pytest.fixture
def networks():
    try:
        made = Networks()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
    yield made
    made.remove()


def test_a_worker_goes_on_when_the_network_to_a_server_is_mended(networks, cluster, tmp_path):
    processes = cluster()
    here, there = networks.addresses
    processes.jobs = {"ps": [f"{here}:2222", f"{there}:2222"], "worker": [f"{here}:2223"]}
    for task in range(2):
        processes.serve("ps", task, inside=networks.inside(task))
    arguments = (0, tmp_path / "saved", 0, tmp_path / "enough")
    program = PROGRAMS / "session_worker.py"
    processes.start("worker_0", program, *arguments, inside=networks.inside(0))
    wait_for_steps(processes, "worker_0", 20)
    networks.cut()
    cut = time.monotonic()
    time.sleep(10)
    before = steps_of(processes, "worker_0")
    assert before[-1][0] < cut + 1
    networks.join()
    mended = time.monotonic()
    waited = wait_for_steps(processes, "worker_0", 20, mended) - mended
    print(f"after {waited:.1f} s")
    assert waited < 60
    (tmp_path / "enough").touch()
    result_of(processes.finish("worker_0"))
    found = steps_of(processes, "worker_0")
    # No step was lost, none done twice, and no checkpoint restored.
    assert [step for _, step, _ in found] == list(range(found[0][1], found[0][1] + len(found)))
    assert all(most == 0.5 - step for _, step, most in found)
