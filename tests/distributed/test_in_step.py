"""Synchronous replicas and workers compute what one process computes with the whole batch."""

import pytest

import de_core as de
from tests.distributed.support.processes import PROGRAMS, result_of

IDS = 50


def check(found, here, rows):
    for rule in ("SGD", "own Adam", "tf_keras", "legacy", "TensorFlow 1", "Adam"):
        about = found[rule]
        assert about["rows"] < 1e-6
        assert about["dense"] < 1e-6
        assert about["found"]
        assert about["size"] == 0
        # Each row is in exactly one shard.
        assert len(about["here"]) == here
    assert "must not use global_clipnorm" in found["refused"]["global"]
    assert "must not use gradients that are added up already" in found["refused"]["summed"]
    assert found["verbs"]["contained"] == [False, True, True]
    assert found["verbs"]["exported"] == [rows] * 2
    assert found["verbs"]["scored"] == [60, 60]
    assert found["verbs"]["as looked up"] == 0
    assert found["verbs"]["pooled"] < 1e-6
    assert found["restored"] == [[0, rows]] * 2
    assert found["files"] == 2


def test_replicas_of_one_process_train_as_one(forks, tmp_path):
    done = forks.file(PROGRAMS / "in_step.py", "mirrored", tmp_path)
    assert done.returncode == 0, done.stderr
    found = result_of(done.stdout)
    check(found, here=2, rows=IDS + 2)
    assert sum(found["Adam"]["here"]) == IDS
    assert found["losses"][1] < found["losses"][0] / 2


@pytest.mark.slow
def test_workers_train_as_one_and_save_one_checkpoint(cluster, tmp_path):
    processes = cluster(worker=2)
    names = processes.start_workers(PROGRAMS / "in_step.py", "worker", tmp_path)
    first, second = (result_of(processes.finish(name)) for name in names)
    for found in (first, second):
        check(found, here=1, rows=IDS + 3)
    for name in ("text", "export_batches", "a SavedModel", "deltas"):
        assert "Received: " in first["refused"][name]
    assert "must not use reject_nonfinite" in first["refused"]["reject_nonfinite"]
    assert first["Adam"]["here"][0] + second["Adam"]["here"][0] == IDS
    assert min(first["Adam"]["here"] + second["Adam"]["here"]) > IDS / 3
    assert first["verbs"]["upserted"][0] in (0, 1)

    # Restore into another number of shards.
    here = de.Variable(dim=3, name="users", devices=["/CPU:0"] * 3)
    for path in (tmp_path / "tables", tmp_path / "of_0" / "model"):
        here.clear()
        assert de.checkpoint.restore(here, path) == {"users": IDS + 3}
        assert here.lookup([102]).numpy().tolist() == [[first["verbs"]["upserted"][1]] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_many_features_share_collectives_and_strings_travel(cluster, tmp_path, workers):
    processes = cluster(worker=workers)
    for name in processes.start_workers(PROGRAMS / "in_step_many.py", tmp_path):
        found = result_of(processes.finish(name))
        # The lookup needs three collectives: counts, keys and rows. The gradients need one. A
        # second dtype of rows needs one more of each.
        # A collection of the features needs no more.
        counts = {"1, 5": [4], "3, 3": [6]}
        if workers == 2:
            counts = {"1, 1": [4], "3, 8": [6, 6]}
        assert found["collectives"] == counts
        assert max(found["differences"]) < 1e-6
        assert all(found["found"])
        words = found["words"]
        assert words["contained"] == [True, True, True, False]
        assert len(set(words["size"])) == 1
        assert words["as looked up"] == 0
        assert words["empty batch"] == [0, 2]
        assert words["restored"] == [words["size"][0], 0]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [3, 1])
def test_another_number_of_workers_goes_on_from_a_checkpoint_of_two(cluster, tmp_path, workers):
    program = PROGRAMS / "resuming_worker.py"
    writers, readers = cluster(worker=2), cluster(worker=workers)
    names = writers.start_workers(program, "first", tmp_path, name="writer")
    written = [result_of(writers.finish(name))["here"] for name in names]
    assert min(written) > 0
    if workers > 1:
        names = readers.start_workers(program, "then", tmp_path)
    else:
        names = ["alone"]
        readers.start("alone", program, "then", tmp_path)
    found = [result_of(readers.finish(name))["steps"] for name in names]
    for steps in zip(*found, strict=True):
        for about in steps:
            assert about["rows"] < 1e-6
            assert len(about["slots"]) == 2
            assert max(about["slots"]) < 1e-6
            assert about["slots not zero"]
            assert about["dense"] < 1e-6
            assert about["found"]
            assert about["iterations"][0] == about["iterations"][1]
        # Each row is on exactly one worker, no matter who wrote it.
        here = [about["here"] for about in steps]
        assert min(here) > 0
        assert sum(here) == steps[0]["size"]
    assert found[0][0]["size"] == sum(written) < found[0][-1]["size"]
