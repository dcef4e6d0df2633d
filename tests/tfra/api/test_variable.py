"""The methods of `tfra`'s Variables, of their shards and of their slots."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as core
from de_core import tfra
from de_core.base.keras import keras
from tests.support import execution_modes

de = tfra.dynamic_embedding
CPU = "/CPU:0"


@pytest.mark.parametrize(
    ("initializer", "row"),
    [
        ("unknown", [b"unknown"] * 2),
        (b"q", [b"q"] * 2),
        (["x", "y"], [b"x", b"y"]),
        (np.array(["x"]), [b"x"] * 2),
        (tf.constant(["x", "y"]), [b"x", b"y"]),
        (tf.constant_initializer("z"), [b"z"] * 2),
        (lambda shape: tf.fill(shape, "f"), [b"f"] * 2),
        (None, [b""] * 2),
    ],
)
def test_a_table_of_strings_may_have_an_initial_row(initializer, row):
    table = de.Variable(value_dtype=tf.string, dim=2, initializer=initializer)
    table.upsert([7], [["stored", "too"]])
    expected = [[b"stored", b"too"], row]
    assert table.lookup([7, 8]).numpy().tolist() == expected
    assert de.embedding_lookup(table, [7, 8]).numpy().tolist() == expected
    assert de.embedding_lookup_unique(table, [7, 8]).numpy().tolist() == expected
    exists = table.lookup([7, 8], return_exists=True)[1]
    assert exists.numpy().tolist() == [True, False]


@pytest.mark.parametrize("initializer", [3, ["a", "b", "c"]])
def test_another_initial_row_of_strings_is_refused(initializer):
    with pytest.raises(TypeError, match="must give one string or 2"):
        de.Variable(value_dtype=tf.string, dim=2, initializer=initializer)


@pytest.mark.parametrize("initializer", [[2.0], np.array([2.0]), tf.constant([2.0])])
def test_an_initializer_of_one_element_fills_the_row(initializer):
    table = de.Variable(dim=3, initializer=initializer)
    assert table.lookup([7]).numpy().tolist() == [[2, 2, 2]]
    layer = de.keras.layers.Embedding(3, initializer=initializer)
    assert layer(tf.constant([7], tf.int64)).numpy().tolist() == [[2, 2, 2]]


def test_a_variable_looks_itself_up():
    table = de.Variable(dim=2, initializer=[3.0, 4.0], name="itself")
    rows, wrapper = table.embedding_lookup([7], max_norm=1.0)
    np.testing.assert_allclose(rows, [[0.6, 0.8]], rtol=1e-6)
    assert wrapper.params is table


@pytest.mark.parametrize("name", execution_modes.NAMES)
def test_each_shard_has_the_methods_of_a_table(name):
    with execution_modes.entered(name) as mode:
        table = de.Variable(dim=1, devices=[CPU] * 2, partitioner=lambda keys, n: keys % n)
        even, odd = table.tables
        mode.run(lambda: odd.insert(tf.constant([1, 3], tf.int64), [[1.0], [3.0]]))
        assert mode.run(even.size) == 0
        assert mode.run(odd.size) == mode.run(table.size) == 2
        assert mode.run(lambda: odd.remove(tf.constant([1], tf.int64))) is None
        rows, exists = mode.run(lambda: odd.lookup([1, 3], [[9.0], [9.0]], return_exists=True))
        assert rows.tolist() == [[9], [3]]
        assert exists.tolist() == [False, True]
        assert mode.run(odd.export)[0].tolist() == [3]
        mode.run(odd.clear)
        assert mode.run(table.size) == 0


def test_a_shard_is_saved_and_loaded_alone(tmp_path):
    table = de.Variable(dim=1, devices=[CPU] * 2, name="saved_alone")
    table.upsert(np.arange(20), np.arange(20, dtype=np.float32)[:, None])
    counts = [int(shard.size()) for shard in table.tables]
    assert sum(counts) == 20
    for shard in table.tables:
        shard.save_to_file_system(str(tmp_path))
    table.tables[0].save_to_file_system(str(tmp_path), file_name="own")
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "own.de",
        "saved_alone_mht_1of2.de",
        "saved_alone_mht_2of2.de",
    ]
    table.clear()
    table.tables[0].load_from_file_system(str(tmp_path))
    assert [int(shard.size()) for shard in table.tables] == [counts[0], 0]
    table.tables[1].load_from_file_system(str(tmp_path), "saved_alone_mht_2of2")
    assert table.lookup(np.arange(20)).numpy().ravel().tolist() == list(range(20))


@pytest.mark.parametrize(("count", "chosen"), [(1, False), (2, True)])
def test_a_saver_takes_the_shards_of_a_table_and_saves_no_row_twice(tmp_path, count, chosen):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        table = de.get_variable("saved", dim=1, devices=[CPU] * count)
        shards = table.tables
        session.run(v1.global_variables_initializer())
        session.run(table.upsert(tf.range(9, dtype=tf.int64), tf.ones([9, 1])))
        saver = v1.train.Saver(shards if chosen else None)
        path = saver.save(session, str(tmp_path / "model"))
        session.run(table.clear())
        saver.restore(session, path)
        assert session.run(table.size()) == 9


def test_initializing_a_graph_keeps_the_rows_that_are_there():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        kept = de.get_variable("kept", dim=1)
        emptied = core.get_variable("emptied", dim=1)
        for table in (kept, emptied):
            session.run(table.upsert(tf.constant([1], tf.int64), [[5.0]]))
        session.run(v1.global_variables_initializer())
        assert session.run([kept.size(), emptied.size()]) == [1, 0]


def test_a_module_that_holds_a_shard_saves_no_rows_for_it(tmp_path):
    module = tf.Module()
    module.shard = de.Variable(dim=1, name="held").tables[0]
    assert module.shard.name.startswith("held")
    path = tf.train.Checkpoint(module=module).write(str(tmp_path / "checkpoint"))
    assert [name for name, _ in tf.train.list_variables(path) if "OBJECT_GRAPH" not in name] == []


def test_a_scope_that_reuses_makes_new_tables_too():
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with v1.variable_scope("scope", reuse=True):
            made = de.get_variable("new", dim=2)
            assert de.get_variable("new", dim=2) is made
        with v1.variable_scope("scope"), pytest.raises(ValueError, match="already exists"):
            de.get_variable("new", dim=2)


def test_wrappers_are_found_by_name():
    table = de.Variable(dim=2, name="stored")
    shadow = de.shadow_ops.ShadowVariable(table, name="mine")
    wrapper = de.embedding_lookup_unique(table, [1], name="other", return_trainable=True)[1]
    assert dict(table.trainable_store) == {"mine": shadow, "other": wrapper}
    assert table.get_trainable_by_name("mine") is shadow
    del wrapper
    assert list(table.trainable_store) == ["mine"]
    with tf.Graph().as_default():
        table = de.get_variable("stored", dim=2)
        de.embedding_lookup(table, [1], name="kept", return_trainable=True)
        assert table.get_trainable_by_name("kept").ids == [1]


def test_a_new_folder_is_made_for_files(tmp_path):
    table = de.Variable(dim=1, name="filed")
    table.save_to_file_system(str(tmp_path / "not" / "there"))
    table.tables[0].save_to_file_system(str(tmp_path / "nor" / "here"))
    assert len(list(tmp_path.rglob("*.de"))) == 2


def test_no_op_arguments_are_accepted():
    table = de.Variable(dim=1, name="no_op", bp_v2=True, short_file_name=True)
    assert table.short_file_name
    rows = de.embedding_lookup(table, [1], "mod", "rows", True)
    assert rows.shape == (1, 1)
    ids = tf.sparse.from_dense(tf.constant([[3]], tf.int64))
    assert de.embedding_lookup_sparse(table, ids, None, "mod", "rows", "sum").shape == (1, 1)
    assert de.embedding_lookup_unique(table, [1], "mod", "rows", True, 1.0).shape == (1, 1)


def test_a_slot_can_be_written_and_read_per_shard():
    table = de.Variable(dim=2, name="with_slots", devices=["/CPU:0"] * 2, initializer=0.0)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1))
    keys = tf.range(6, dtype=tf.int64)
    optimizer.apply_gradients([(tf.IndexedSlices(tf.ones([6, 2]), keys), *table.variables)])
    first, second = sorted(table.get_slot_variables(optimizer), key=lambda slot: slot.name)
    assert (first.name, second.name) == ("with_slots/m", "with_slots/v")
    first.upsert([1, 99], [[5.0, 6.0], [7.0, 8.0]])
    assert first.lookup([1])[0].numpy().tolist() == [5, 6]
    assert table.size() == 6  # key 99 has no row
    assert sorted(np.concatenate([each.export()[0] for each in first.tables])) == list(range(6))
    for slot, shard in zip(first.tables, table.tables, strict=True):
        assert slot.size() == shard.size()
        slot.insert(shard.export()[0], tf.fill([shard.size(), 2], 3.0))
    assert np.all(first.lookup(keys) == 3)


def test_a_layer_has_the_slots_of_its_optimizers():
    layer = de.keras.layers.Embedding(2, name="slotted")
    assert layer.optimizer_vars == []
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0, momentum=0.9))
    gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([7], tf.int64))
    optimizer.apply_gradients([(gradient, *layer.params.variables)])
    [slot] = layer.optimizer_vars
    assert slot.lookup([7]).numpy().tolist() == [[-1, -1]]
