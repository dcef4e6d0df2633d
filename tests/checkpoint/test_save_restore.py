"""Tests `de.checkpoint.save` and `restore`: any layout, some rows, other dtypes, wrong files."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.snapshot.file import about
from tests.support.models import rows_of

KEYS = np.arange(-300, 300, dtype=np.int64)
ROWS = np.random.default_rng(1).normal(size=(600, 3)).astype(np.float32)


def by_modulo(keys, count):
    return tf.cast(tf.math.floormod(keys, count), tf.int32)


def make(shards=1, partitioner=de.default_partition_fn, **arguments):
    arguments = {"dim": 3, "name": "t", **arguments}
    return de.Variable(devices=["/CPU:0"] * shards, partitioner=partitioner, **arguments)


def trained(table):
    """Writes rows into a table, and trains some rows so that they have slots."""
    table.upsert(KEYS, ROWS)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1, momentum=0.5))
    optimizer.apply([tf.IndexedSlices(tf.constant(ROWS[:100]), tf.constant(KEYS[:100]))], [table])
    return table


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saves three tables with slots; returns the checkpoint and the rows."""
    folder = tmp_path_factory.mktemp("saved")
    table = trained(make(shards=3))
    de.checkpoint.save(table, folder)
    return str(folder), rows_of(table)


@pytest.mark.parametrize("shards", [1, 3, 4])
@pytest.mark.parametrize("partitioner", [de.default_partition_fn, by_modulo])
def test_restores_into_any_layout(saved, shards, partitioner):
    table = make(shards, partitioner)
    table.upsert([10**6], [[1.0, 1.0, 1.0]])
    assert de.checkpoint.restore(table, saved[0]) == {"t": 600}
    assert rows_of(table) == saved[1]
    for index in range(shards):
        keys, _ = table.tables[index].export()
        assert np.all(partitioner(keys, shards) == index)
        assert len(keys) > 0


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("partitioner", [de.default_partition_fn, by_modulo])
@pytest.mark.parametrize("by", ["list", "predicate"])
@pytest.mark.parametrize("merge", [False, True])
def test_restores_only_some_keys(saved, shards, partitioner, by, merge):
    table = make(shards, partitioner)
    table.upsert([3, 4, 10**6], tf.fill([3, 3], 8.0))
    only = [3, 77, 10**9] if by == "list" else lambda keys: (keys == 3) | (keys == 77)
    de.checkpoint.restore(table, saved[0], only=only, merge=merge)
    expected = {key: saved[1][key] for key in (3, 77)}
    stay = {4: [8.0] * 3, 10**6: [8.0] * 3} if merge else {}
    assert rows_of(table) == expected | stay


def test_merging_keeps_the_rows_that_the_checkpoint_does_not_have(saved):
    table = make(2)
    table.upsert([3, 10**6], tf.fill([2, 3], 8.0))
    de.checkpoint.restore(table, saved[0], merge=True)
    assert rows_of(table) == {**saved[1], 10**6: [8.0] * 3}


@pytest.mark.parametrize(("saved_steps", "own_steps"), [(40, 3), (3, 40)])
def test_merging_rows_of_another_count_of_steps_expires_none(tmp_path, saved_steps, own_steps):
    def stepped(key, steps):
        table = make(eviction=de.EvictionTTL(steps=10))
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1))

        def step(key):
            keys = tf.constant([key], tf.int64)
            optimizer.apply([tf.IndexedSlices(tf.ones([1, 3]), keys)], [table])

        for _ in range(steps):
            step(key)
        return table, step

    de.checkpoint.save(stepped(1, saved_steps)[0], tmp_path)
    table, step = stepped(2, own_steps)
    assert de.checkpoint.restore(table, tmp_path, merge=True) == {"t": 2}
    for passed in range(1, 12):
        step(3)
        assert table.contains([1, 2]).numpy().tolist() == [passed <= 10] * 2


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("change", ["removed", "cleared"])
def test_a_base_and_its_delta_are_one_table_by_whatever_rows_are_chosen(tmp_path, change, merge):
    table = make()
    table.upsert([1, 2, 3], tf.fill([3, 3], 1.0))
    manager = de.checkpoint.Manager(table, str(tmp_path))
    manager.save()
    if change == "removed":
        table.remove([1, 3])
    else:
        table.clear()
        table.upsert([2, 4], tf.fill([2, 3], 2.0))
    path = manager.save()
    expected = rows_of(table) | ({1: [8.0] * 3} if merge else {})
    every = [
        (make(), None),
        (make(), [1, 2, 3, 4]),
        (make(), lambda keys: keys > 0),
        (make(2), lambda keys: keys > 0),
        (make(2, by_modulo), None),
    ]
    for other, only in every:
        other.upsert([1], tf.fill([1, 3], 8.0))
        de.checkpoint.restore(other, path, only=only, merge=merge)
        assert rows_of(other) == expected


def slots_of(path):
    return about(path)["slots"]


def test_slots_are_read_or_left(saved, tmp_path):
    for slots in (True, False):
        table = make()
        de.checkpoint.restore(table, saved[0], slots=slots)
        assert rows_of(table) == saved[1]
        table.save_to_file_system(str(tmp_path))
        assert bool(slots_of(str(tmp_path / "t_mht_1of1.de"))) == slots
    de.checkpoint.save(trained(make()), tmp_path / "values", slots=False)
    [file] = (tmp_path / "values").glob("*.de")
    assert slots_of(str(file)) == []


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_values_are_converted_when_asked(saved, tmp_path, dtype):
    small, back = make(value_dtype=dtype), make()
    with pytest.raises(tf.errors.InvalidArgumentError, match="float32"):
        de.checkpoint.restore(small, saved[0])
    assert int(small.size()) == 0
    de.checkpoint.restore(small, saved[0], convert=True)
    expected = tf.cast(tf.constant([saved[1][key] for key in KEYS.tolist()]), dtype)
    np.testing.assert_array_equal(
        tf.cast(small.lookup(KEYS), tf.float32), tf.cast(expected, tf.float32)
    )
    some = make(2, value_dtype=dtype)
    for only in (KEYS[:9], lambda keys: keys < KEYS[9]):
        de.checkpoint.restore(some, saved[0], convert=True, only=only)
        assert int(some.size()) == 9
        np.testing.assert_array_equal(some.lookup(KEYS[:9]), small.lookup(KEYS[:9]))
    de.checkpoint.save(small, tmp_path)
    de.checkpoint.restore(back, tmp_path, convert=True)
    np.testing.assert_array_equal(back.lookup(KEYS), tf.cast(expected, tf.float32))


@pytest.mark.parametrize("value_dtype", [tf.string, tf.int8, tf.bool, tf.float64])
def test_strings_and_other_values(tmp_path, value_dtype):
    first, second = (
        de.Variable(tf.string, value_dtype, dim=2, name="s", devices=["/CPU:0"] * count)
        for count in (2, 3)
    )
    keys = tf.constant(["", "a", "b" * 300, b"\xff\x00z"])
    values = tf.constant([[0, 1], [1, 1], [1, 0], [0, 0]])
    values = (
        tf.strings.as_string(values) if value_dtype == tf.string else tf.cast(values, value_dtype)
    )
    first.upsert(keys, values)
    reports = de.checkpoint.save(first, tmp_path)
    assert sum(report["rows"] for report in reports["s"]) == 4
    assert de.checkpoint.restore(second, tmp_path) == {"s": 4}
    np.testing.assert_array_equal(second.lookup(keys), values)
    de.checkpoint.restore(second, tmp_path, only=["a", "absent"])
    assert int(second.size()) == 1


def test_a_model_and_a_dict_name_their_tables(tmp_path):
    model, other = tf.Module(), tf.Module()
    model.users, model.items = de.Variable(dim=1, name="users"), de.Variable(dim=2, name="items")
    model.users.upsert([1], [[1.0]])
    model.items.upsert([2], [[2.0, 2.0]])
    de.checkpoint.save(model, tmp_path)
    other.users, other.things = de.Variable(dim=1, name="users"), de.Variable(dim=2, name="things")
    with pytest.raises(ValueError, match=r"must be in the checkpoint.*'things'.*'items', 'users'"):
        de.checkpoint.restore(other, tmp_path)
    sizes = de.checkpoint.restore({"users": other.users, "items": other.things}, tmp_path)
    assert sizes == {"users": 1, "items": 1}
    np.testing.assert_array_equal(other.things.lookup([2]), [[2, 2]])


def test_reads_what_other_doors_wrote(tmp_path):
    model = keras.Sequential(
        [keras.Input([], dtype="int64"), de.layers.Embedding(3, name="t", devices=["/CPU:0"] * 2)]
    )
    table = model.layers[0].table
    table.upsert(KEYS[1:], ROWS[:-1])
    de.publish(model, tmp_path / "published")
    table.upsert(KEYS, ROWS)
    published = de.publish(model, tmp_path / "published")  # a base and a delta
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "tf" / "c"))
    table.save_to_file_system(str(tmp_path / "files"))
    version = de.export(model, tmp_path / "served")
    for path in (prefix, tmp_path / "tf", tmp_path / "files", version, published):
        fresh = make()
        assert de.checkpoint.restore(fresh, path) == {"t": 600}
        assert rows_of(fresh) == rows_of(table)


class TestBadInput:
    """A wrong file raises an error with the file's name. Table and checkpoint do not change."""

    @pytest.fixture
    def folder(self, tmp_path):
        table = make(2)
        table.upsert(KEYS, ROWS)
        de.checkpoint.save(table, tmp_path)
        return tmp_path

    def fails(self, folder, error, match, **options):
        table = make(2)
        table.upsert([5], tf.ones([1, table.dim]))
        with pytest.raises(error, match=match):
            de.checkpoint.restore(table, folder, **options)
        assert int(table.size()) == 1

    def test_a_missing_checkpoint_raises(self, tmp_path):
        self.fails(tmp_path / "absent", tf.errors.NotFoundError, "must exist.*absent")
        self.fails(tmp_path, tf.errors.NotFoundError, "whole checkpoint")

    def test_a_damaged_manifest(self, folder):
        data = bytearray((folder / "MANIFEST").read_bytes())
        for at in range(0, len(data), 37):
            broken = bytearray(data)
            broken[at] ^= 1
            (folder / "MANIFEST").write_bytes(bytes(broken))
            self.fails(folder, tf.errors.OpError, "MANIFEST")

    def test_keys_of_another_kind(self, folder):
        table = de.Variable(tf.string, dim=3, name="t")
        with pytest.raises(tf.errors.InvalidArgumentError, match="key"):
            de.checkpoint.restore(table, folder)

    @pytest.mark.parametrize("way", ["whole", "merge", "predicate", "list", "pair", "files", "tf"])
    @pytest.mark.parametrize("shards", [1, 2])
    def test_int64_keys_of_an_int32_table(self, tmp_path, way, shards):
        wide, narrow = make(shards), make(shards, key_dtype=tf.int32)
        names = {"a": make(name="a"), "t": narrow}
        for table in (wide, narrow, names["a"]):
            table.upsert([7], tf.ones([1, 3]))
        restore, folder = lambda **k: de.checkpoint.restore(narrow, folder, **k), str(tmp_path)
        reads = {
            "whole": restore,
            "merge": lambda: restore(merge=True),
            "predicate": lambda: restore(only=lambda keys: keys < 9),
            "list": lambda: restore(only=tf.constant([5, -5])),
            "pair": lambda: de.checkpoint.restore(names, folder),
            "files": lambda: narrow.load_from_file_system(folder),
            "tf": lambda: tf.train.Checkpoint(t=narrow).read(folder + "/c"),
        }

        def write(keys):
            wide.upsert(keys, tf.fill([len(keys), 3], 2.0))
            if way == "files":
                wide.save_to_file_system(folder)
            elif way == "tf":
                tf.train.Checkpoint(t=wide).write(folder + "/c")
            else:
                de.checkpoint.save([wide, names["a"]] if way == "pair" else wide, folder)

        write([5, -5])
        reads[way]()
        assert rows_of(narrow).keys() >= {5, -5}
        write([2**32 + 5, -(2**31) - 1])
        names["a"].upsert([8], tf.ones([1, 3]))
        before = rows_of(narrow)
        if way == "list":
            reads[way]()  # the keys that are read are in int32
            return
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"int32.*Received: key=-?\d{10}"):
            reads[way]()
        assert rows_of(narrow) == before
        assert int(names["a"].size()) == 2

    def test_no_table_changes_if_one_of_several_does_not_fit(self, tmp_path):
        pair = {"a": de.Variable(dim=1, name="a"), "b": de.Variable(dim=2, name="b")}
        pair["a"].upsert([1], [[1.0]])
        pair["b"].upsert([1], [[1.0, 1.0]])
        de.checkpoint.save(pair, tmp_path)
        other = {"a": de.Variable(dim=1, name="a"), "b": de.Variable(dim=3, name="b")}
        with pytest.raises(tf.errors.InvalidArgumentError, match="dim"):
            de.checkpoint.restore(other, tmp_path)
        assert int(other["a"].size()) == 0

    def test_a_predicate_must_answer_for_each_key(self, folder):
        self.fails(folder, ValueError, "bool for each", only=lambda keys: keys)

    def test_a_predicate_that_fails_late_changes_no_table(self, tmp_path):
        pair = {"a": make(name="a"), "b": de.Variable(tf.string, dim=1, name="b")}
        pair["a"].upsert([1], tf.ones([1, 3]))
        pair["b"].upsert(["x"], [[1.0]])
        de.checkpoint.save(pair, tmp_path)
        pair["a"].upsert([2], tf.ones([1, 3]))
        with pytest.raises(TypeError):  # strings
            de.checkpoint.restore(pair, tmp_path, only=lambda keys: keys < 5)
        assert (int(pair["a"].size()), int(pair["b"].size())) == (2, 1)

    def test_no_checkpoint_at_all(self, tmp_path):
        with pytest.raises(TypeError, match="holds no whole one"):
            de.checkpoint.restore(make(), de.checkpoint.latest(tmp_path))

    def test_keys_of_another_dtype(self, folder):
        for only in ("abc", [1.5], tf.constant([1])):
            self.fails(folder, TypeError, "`only` of table 't' must be int64", only=only)

    def test_no_tables(self, tmp_path):
        with pytest.raises(ValueError, match="at least one"):
            de.checkpoint.save(tf.Module(), tmp_path)
        with pytest.raises(TypeError, match="modules, layers"):
            de.checkpoint.save(3, tmp_path)

    @pytest.mark.parametrize("as_dict", [False, True])
    @pytest.mark.parametrize(
        "of", [lambda table: table, lambda table: table._anchor, lambda table: table._anchor.value]
    )
    def test_a_saver_of_tensorflow_1(self, of, as_dict, tmp_path):
        table = make()
        table.lookup(KEYS)
        given = {"t": of(table)} if as_dict else [[of(table)], tf.Variable(1.0)]
        saver = tf.compat.v1.train.Saver(given)
        with pytest.raises(ValueError, match=r"Received: table='t'. Use tf.train.Check"):
            saver.save(None, str(tmp_path / "model"))

    def test_a_graph(self, tmp_path):
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="Saver"):
            de.checkpoint.save(tf.Module(), tmp_path)


@pytest.mark.parametrize("folder", ["run[1]", "a b", "lr=*", "what?", "back\\slash", "ü"])
def test_folders_of_any_name(tmp_path, folder):
    table = make()
    table.upsert([1], tf.ones([1, 3]))
    de.checkpoint.save(table, tmp_path / folder / "step-1")
    table.clear()
    assert de.checkpoint.latest(tmp_path / folder) == str(tmp_path / folder / "step-1")
    assert de.checkpoint.restore(table, tmp_path / folder) == {"t": 1}


def test_an_empty_path_is_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    de.checkpoint.save(make(), "")
    assert de.checkpoint.restore(make(), tmp_path) == {"t": 0}


def test_saves_of_several_threads_leave_a_whole_checkpoint(tmp_path):
    table = make(2)
    table.upsert(KEYS, ROWS)

    def save(_):
        try:
            return de.checkpoint.save(table, tmp_path)
        except tf.errors.AbortedError:  # another save replaced it
            return None

    with ThreadPoolExecutor(3) as pool:
        assert any(list(pool.map(save, range(18))))
    table.clear()
    assert de.checkpoint.restore(table, tmp_path) == {"t": 600}
    assert len(list(tmp_path.iterdir())) == 3


def test_tables_of_one_name_are_not_taken_for_one(tmp_path):
    module = tf.Module()
    module.a, module.b = make(), make()
    module.a.upsert([1], tf.ones([1, 3]))
    module.b.upsert([2, 3], tf.ones([2, 3]))
    prefix = tf.train.Checkpoint(module=module).save(tmp_path / "ckpt")
    with pytest.raises(ValueError, match=r"\['t \(1\)', 't \(2\)'\]"):
        de.checkpoint.restore(make(), prefix)
    assert de.checkpoint.restore({"t (1)": make(), "t (2)": make()}, prefix) == {
        "t (1)": 1,
        "t (2)": 2,
    }


def test_the_newest_whole_checkpoint_is_found(tmp_path):
    table = make()
    assert de.checkpoint.latest(tmp_path) is None
    for step in (1, 2, 3):
        table.upsert([step], tf.ones([1, 3]))
        de.checkpoint.save(table, tmp_path / f"step-{step}")
    (tmp_path / "step-3" / "MANIFEST").unlink()
    assert de.checkpoint.latest(tmp_path) == str(tmp_path / "step-2")
    fresh = make()
    assert de.checkpoint.restore(fresh, tmp_path) == {"t": 2}
