"""A TensorFlow 1 worker in a monitored session trains over a bad network to a server."""

import subprocess
import time

import pytest

from tests.distributed.support.networks import Networks
from tests.distributed.support.processes import PROGRAMS, result_of
from tests.distributed.support.steps import steps_of, wait_for_steps

pytestmark = pytest.mark.slow


@pytest.fixture
def networks():
    try:
        made = Networks()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
    yield made
    made.remove()


@pytest.fixture
def training(networks, cluster, tmp_path):
    """Trains with a worker and a server in one network and a second server in the other."""
    processes = cluster()
    here, there = networks.addresses
    processes.jobs = {"ps": [f"{here}:2222", f"{there}:2222"], "worker": [f"{here}:2223"]}
    for task in range(2):
        processes.serve("ps", task, inside=networks.inside(task))
    arguments = (0, tmp_path / "saved", 0, tmp_path / "enough")
    program = PROGRAMS / "session_worker.py"
    processes.start("worker_0", program, *arguments, inside=networks.inside(0))
    wait_for_steps(processes, "worker_0", 20)
    return processes


def check_steps(processes, tmp_path):
    """Ends the training; checks that no step was lost or repeated and no checkpoint restored."""
    (tmp_path / "enough").touch()
    result_of(processes.finish("worker_0"))
    found = steps_of(processes, "worker_0")
    assert [step for _, step, _ in found] == list(range(found[0][1], found[0][1] + len(found)))
    assert all(most == 0.5 - step for _, step, most in found)


def test_a_worker_goes_on_when_the_network_to_a_server_is_mended(networks, training, tmp_path):
    networks.cut()
    cut = time.monotonic()
    time.sleep(10)
    before = steps_of(training, "worker_0")
    assert sum(when > cut for when, _, _ in before) <= 1  # the step that was under way
    networks.join()
    wait_for_steps(training, "worker_0", 20, time.monotonic())
    check_steps(training, tmp_path)


@pytest.mark.parametrize("worse", [("lose", 0.05), ("lose", 0.2), ("slow_down", "100kbit")])
def test_a_worker_goes_on_over_a_bad_network(networks, training, tmp_path, worse):
    method, how_much = worse
    try:
        getattr(networks, method)(how_much)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"networks cannot be made worse here: {error}")
    wait_for_steps(training, "worker_0", 60, time.monotonic())
    check_steps(training, tmp_path)
