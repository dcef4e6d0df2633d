"""Chains of deltas: each save writes the changes, and base + deltas give the table.

The engine's tests compare merged and compacted files with maps, and name files that make no chain.
"""

import json

import pytest
import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.table import apply
from tests.kernels.snapshot_reference_reader import Snapshot


def save(table, path, **options):
    return json.loads(library.de_table_save(table, str(path), **options).numpy())


def restore(table, paths, **options):
    paths = [str(each) for each in paths]
    return json.loads(library.de_table_restore(table, paths, **options).numpy())


def put(table, keys, value):
    keys = tf.constant(keys, tf.int64) if not isinstance(keys[0], str) else tf.constant(keys)
    library.de_table_insert_or_assign(table, keys, tf.fill([len(keys), 2], float(value)))


def contents(table, key_dtype=tf.int64, slot=""):
    keys, values = library.de_table_export(table, Tkeys=key_dtype, Tvalues=tf.float32, slot=slot)
    return dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True))


class Chain:
    """A table with a base and three deltas, and its content after each of them."""

    def __init__(self, make_table, folder, names):
        self.table = make_table(key_dtype=names.dtype)
        self.dtype = names.dtype
        self.names = names.numpy().tolist()
        self.paths = [folder / f"{i}.de" for i in range(4)]
        self.states, self.reports = [], []
        insert, erase = library.de_table_insert_or_assign, library.de_table_erase
        insert(self.table, names, tf.zeros([len(names), 2]))
        self._save(0)
        insert(self.table, names[:20], tf.ones([20, 2]))
        erase(self.table, names[10:30])
        self._save(1)
        insert(self.table, names[25:40], tf.fill([15, 2], 2.0))
        erase(self.table, names[:5])
        self._save(2)
        step = tf.constant([0.1, 0.9, 0.0], tf.float64)
        apply(self.table, names[50:60], tf.ones([10, 2]), step, "o", rule="momentum")
        self._save(3)

    def _save(self, number):
        self.reports.append(save(self.table, self.paths[number], chain="c", delta=number > 0))
        self.states.append(contents(self.table, self.dtype))


@pytest.fixture(params=["int64", "string"])
def chain(request, make_table, tmp_path):
    numbers = tf.range(1000, dtype=tf.int64)
    return Chain(
        make_table, tmp_path, tf.as_string(numbers) if request.param == "string" else numbers
    )


def test_base_and_deltas_restore_every_state_in_between(chain, make_table):
    for count in range(1, 5):
        other = make_table(key_dtype=chain.dtype)
        library.de_table_insert_or_assign(
            other, tf.constant(["z"]) if chain.dtype == tf.string else tf.constant([-1], tf.int64),
            [[7.0, 7.0]],
        )  # fmt: skip
        report = restore(other, chain.paths[:count])
        assert contents(other, chain.dtype) == chain.states[count - 1]
        assert report["rows"] == len(chain.states[count - 1])
    assert contents(other, chain.dtype, "o/momentum") == contents(
        chain.table, chain.dtype, "o/momentum"
    )


def test_a_delta_holds_what_changed_and_nothing_else(chain):
    assert [each["rows"] for each in chain.reports] == [1000, 10, 15, 10]
    assert [each["tombstones"] for each in chain.reports] == [0, 20, 5, 0]
    assert [each["sequence"] for each in chain.reports] == [0, 1, 2, 3]
    assert chain.reports[2]["parent"] == chain.reports[1]["id"]
    file = Snapshot(chain.paths[1])
    assert set(file.rows()) == set(chain.names[:10])
    assert file.tombstones() == set(chain.names[10:30])
    assert file.find(chain.names[0]).tolist() == [1.0, 1.0]
    assert file.find(chain.names[10]) is None


def test_a_merged_chain_leaves_rows_of_the_table_alone(chain, make_table):
    other = make_table(key_dtype=chain.dtype)
    own = tf.constant(chain.names[:2] + chain.names[10:12], chain.dtype)
    library.de_table_insert_or_assign(other, own, tf.fill([4, 2], 9.0))
    restore(other, chain.paths[:3], replace=False)
    expected = {**{name: [9.0, 9.0] for name in own.numpy().tolist()}, **chain.states[2]}
    assert contents(other, chain.dtype) == expected


def test_shards_and_chosen_keys_restore_their_part(chain, make_table):
    parts = []
    for index in range(3):
        other = make_table(key_dtype=chain.dtype)
        restore(other, chain.paths, shard_index=index, shard_count=3)
        keys = tf.constant(list(contents(other, chain.dtype)), chain.dtype)
        assert set(library.de_shard_of(keys, num_shards=3).numpy()) == {index}
        parts.append(contents(other, chain.dtype))
    assert {key: row for part in parts for key, row in part.items()} == chain.states[3]
    wanted = chain.names[:40:7]
    other = make_table(key_dtype=chain.dtype)
    library.de_table_restore_keys(
        other, [str(each) for each in chain.paths], tf.constant(wanted, chain.dtype)
    )
    assert contents(other, chain.dtype) == {
        key: row for key, row in chain.states[3].items() if key in wanted
    }


def test_failed_and_uncommitted_saves_lose_no_changes(chain, tmp_path):
    table = chain.table
    key = tf.constant(chain.names[600:601], chain.dtype)
    library.de_table_insert_or_assign(table, key, [[5.0, 5.0]])
    with pytest.raises(tf.errors.NotFoundError):
        save(table, tmp_path / "no" / "folder.de", chain="c", delta=True)
    first = save(table, tmp_path / "a.de", chain="c", delta=True, commit=False)
    library.de_table_insert_or_assign(table, key + key, [[6.0, 6.0]])
    second = save(table, tmp_path / "b.de", chain="c", delta=True, commit=False)
    assert (first["rows"], second["rows"]) == (1, 2)
    assert first["parent"] == second["parent"] == chain.reports[3]["id"]
    with pytest.raises(tf.errors.NotFoundError, match="committed only once"):
        library.de_table_commit_save(table, first["id"], chain="c")
    library.de_table_commit_save(table, second["id"], chain="c")
    third = save(table, tmp_path / "c.de", chain="c", delta=True)
    assert (third["rows"], third["parent"]) == (0, second["id"])


def test_chains_are_independent(chain, tmp_path):
    save(chain.table, tmp_path / "publish.de", chain="publish")
    key = tf.constant(chain.names[600:601], chain.dtype)
    library.de_table_insert_or_assign(chain.table, key, [[5.0, 5.0]])
    assert save(chain.table, tmp_path / "a.de", chain="c", delta=True)["rows"] == 1
    assert save(chain.table, tmp_path / "b.de", chain="c", delta=True)["rows"] == 0
    assert save(chain.table, tmp_path / "c.de", chain="publish", delta=True)["rows"] == 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="write a base first"):
        save(chain.table, tmp_path / "d.de", chain="another", delta=True)
    chains = json.loads(library.de_table_chains(chain.table).numpy())
    assert [each["chain"] for each in chains["chains"]] == ["c", "publish"]
