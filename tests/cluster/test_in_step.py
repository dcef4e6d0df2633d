"""Replicas and workers that train in step: the numbers of one process with the whole batch."""

import de_core as de
from tests.cluster.processes import PROGRAMS, result_of

IDS = 50


def check(found, here, rows):
    for rule in ("SGD", "Adam"):
        about = found[rule]
        assert about["rows"] < 1e-6
        assert about["dense"] < 1e-6
        assert about["found"]
        assert about["size"] == 0
        # Every id's row lies in one table.
        assert len(about["here"]) == here
    assert found["verbs"]["contained"] == [False, True, True]
    assert found["verbs"]["exported"] == [rows] * 2
    assert found["verbs"]["as looked up"] == 0
    assert found["verbs"]["pooled"] < 1e-6
    assert found["restored"] == [[0, rows]] * 2
    assert found["files"] == 2


def test_replicas_of_one_process_train_as_one(cluster, tmp_path):
    processes = cluster()
    processes.start("mirrored", PROGRAMS / "in_step.py", "mirrored", tmp_path)
    found = result_of(processes.finish("mirrored"))
    check(found, here=2, rows=IDS + 2)
    assert sum(found["Adam"]["here"]) == IDS
    assert found["losses"][1] < found["losses"][0] / 2


def test_workers_train_as_one_and_save_one_checkpoint(cluster, tmp_path):
    processes = cluster(worker=2)
    for task in range(2):
        name = f"worker_{task}"
        processes.start(name, PROGRAMS / "in_step.py", "worker", task, tmp_path)
    first, second = (result_of(processes.finish(f"worker_{task}")) for task in range(2))
    for found in (first, second):
        check(found, here=1, rows=IDS + 3)
    for name in ("string keys", "text", "export_batches", "a SavedModel", "deltas"):
        assert "Received: " in first["refused"][name]
    assert "reject_nonfinite off" in first["refused"]["reject_nonfinite"]
    assert first["Adam"]["here"][0] + second["Adam"]["here"][0] == IDS
    assert min(first["Adam"]["here"] + second["Adam"]["here"]) > IDS / 3
    assert first["verbs"]["upserted"][0] in (0, 1)

    # Into another number of tables.
    here = de.Variable(dim=3, name="users", devices=["/CPU:0"] * 3)
    for path in (tmp_path / "tables", tmp_path / "of_0" / "model"):
        here.clear()
        assert de.checkpoint.restore(here, path) == {"users": IDS + 3}
        assert here.lookup([102]).numpy().tolist() == [[first["verbs"]["upserted"][1]] * 3]
