"""Checkpoints of models with tables on parameter servers, and steps in a strategy's scope."""

import signal

import pytest

from tests.distributed.support.processes import PROGRAMS, Cluster, result_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The program's findings, with two servers and two workers in its process."""
    folder = tmp_path_factory.mktemp("here")
    processes = Cluster(folder)
    try:
        processes.start("chief", PROGRAMS / "checkpoints_here.py", folder)
        return result_of(processes.finish("chief"))
    finally:
        processes.stop()


def test_a_table_of_the_scope_is_on_all_servers_by_key(found):
    servers = [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(2)]
    assert found["devices"] == servers
    assert sum(found["sizes"]) == 40
    assert min(found["sizes"]) > 10


def test_a_step_outside_of_strategy_run_is_one_sentence(found):
    assert found["outside"].startswith("RuntimeError: A step that trains a model under")
    assert "Call strategy.run(step" in found["outside"]


@pytest.mark.parametrize("kind", ["Checkpoint", "CheckpointManager", "Manager"])
def test_a_checkpoint_brings_back_model_optimizer_and_tables(found, kind):
    assert found[kind] == []


def test_old_files_are_deleted_and_deltas_hold_only_changed_rows(found):
    assert found["kept"] == ["ckpt-2", "ckpt-2", "ckpt-2", "ckpt-3", "ckpt-3", "ckpt-3"]
    assert found["written"] == 2
    assert found["local"] == 40


def test_a_damaged_file_is_the_error_of_one_process(found):
    assert found["damaged"].startswith("DataLossError: ")


def test_a_killed_chief_continues_from_its_checkpoint_with_nothing_lost(cluster, tmp_path):
    processes = cluster(ps=2, worker=2)
    processes.serve_all("ps", "worker")
    program = PROGRAMS / "resuming_chief.py"
    processes.start("chief", program, tmp_path / "saved", 30, 15)
    assert processes.processes["chief"].wait(240) == -signal.SIGKILL
    processes.start("chief", program, tmp_path / "saved", 30, 0)
    found = result_of(processes.finish("chief"))
    assert found["began"] == 10
    assert found["rows"] == [30.0, 30.0]
    assert (found["size"], found["bias"]) == (50, 30.0)
    # Keras 3 reads its count and writes it again, so workers at the same time lose some counts.
    assert 0 < found["began_at"] <= 10
    assert found["began_at"] < found["steps"] <= 30
