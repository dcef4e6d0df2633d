"""`de.erase` removes ids from all tables of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import looker


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.users = de.Variable(dim=2, name="users", devices=["/CPU:0"] * 2)
        self.items = de.Variable(dim=1, name="items")
        self.users.upsert(np.arange(10), np.ones([10, 2], np.float32))
        self.items.upsert(np.arange(5), np.ones([5, 1], np.float32))


def test_ids_go_from_every_table():
    model = Model()
    assert de.erase(model, [[3, 3], [7, 99]]) == {"users": 2, "items": 1}
    assert [int(model.users.size()), int(model.items.size())] == [8, 4]
    assert not any(model.users.contains([3, 7]).numpy())


def test_a_dict_names_the_tables():
    model = Model()
    assert de.erase(model, {"items": [3]}) == {"items": 1}
    assert bool(model.users.contains([3])[0])
    with pytest.raises(ValueError, match="must name tables of the model"):
        de.erase(model, {"things": [3]})


def test_a_wrong_dtype_removes_nothing():
    model = Model()
    model.words = de.Variable(tf.string, dim=1, name="words")
    with pytest.raises(TypeError, match="words"):
        de.erase(model, [3])
    assert [int(model.users.size()), int(model.items.size())] == [10, 5]


def test_a_graph_is_refused():
    model = Model()
    with pytest.raises(RuntimeError, match="eager mode"):
        tf.function(lambda: de.erase(model, [3]))()
    assert int(model.users.size()) == 10


@pytest.mark.parametrize("shards", [1, 2])
def test_an_erased_id_is_counted_anew_and_in_no_new_checkpoint(tmp_path, shards):
    erased = 1234567890123

    def new():
        count = de.AdmissionCount(2)
        return de.Variable(dim=1, name="users", devices=["/CPU:0"] * shards, admission=count)

    users = new()
    users.find_or_insert([1, 1, 3, 3, erased])
    manager = de.checkpoint.Manager(users, str(tmp_path / "m"))
    manager.save()
    assert de.erase(users, [3, erased]) == {"users": 1}
    de.checkpoint.save(users, tmp_path / "new")
    for file in (tmp_path / "new").iterdir():
        assert erased.to_bytes(8, "little") not in file.read_bytes()
    users.find_or_insert([3])  # counted once since; the next delta erases the row of 3
    path = manager.save()
    assert users.contains([1, 3, erased]).numpy().tolist() == [True, False, False]
    other = new()
    de.checkpoint.restore(other, path)
    for table in (users, other):
        table.find_or_insert([3, erased])
        assert table.contains([1, 3, erased]).numpy().tolist() == [True, True, False]


def test_no_new_full_version_holds_the_row(tmp_path):
    users = de.Variable(dim=4, name="users")
    rows = np.random.default_rng(0).normal(size=[9, 4]).astype(np.float32)
    users.upsert(np.arange(9), rows)
    module = looker(users)

    def publish(full=False):
        return de.publish(module, tmp_path, {"s": module.look}, full=full)

    def holds(version):
        files = [each for each in Path(version).rglob("*") if each.is_file()]
        return any(rows[3].tobytes() in each.read_bytes() for each in files)

    publish()
    de.erase(module, [3])
    assert holds(publish())  # a delta's base keeps the row
    assert not holds(publish(full=True))
