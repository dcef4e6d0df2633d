"""A Variable in Redis behaves like one in main memory."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core_cli.main import main
from tests.storage.servers import creator_for
from tests.support import execution_modes
from tests.support.models import rows_of

DIM = 3


def test_every_verb_agrees_with_a_table_in_memory(creator):
    tables = [
        de.Variable(dim=DIM, name="verbs", initializer="uniform", kv_creator=kind)
        for kind in (creator, None)
    ]
    rng = np.random.default_rng(0)

    def both(verb, *arguments):
        ours, theirs = (getattr(table, verb)(*arguments) for table in tables)
        for mine, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
            if tf.is_tensor(mine):
                np.testing.assert_array_equal(mine, other)

    for _ in range(12):
        keys = rng.integers(-6, 6, size=8)
        values = rng.normal(size=(8, DIM)).astype(np.float32)
        both("upsert", keys, values)
        both("lookup", keys.reshape(2, 4), True)
        both("accum", keys, values, values * 2)
        both("find_or_insert", rng.integers(-9, 9, size=5))
        both("remove", rng.integers(-6, 6, size=3))
        both("contains", rng.integers(-9, 9, size=[2, 3]))
        both("size")
        assert rows_of(tables[0]) == rows_of(tables[1])
    walked = [key for keys, _ in tables[0].export_batches() for key in keys.numpy().tolist()]
    assert sorted(walked) == sorted(rows_of(tables[1]))
    both("clear")
    assert rows_of(tables[0]) == {}
    both("lookup", [1, 2, 3])


@pytest.mark.parametrize(
    ("key_dtype", "value_dtype", "keys", "values"),
    [
        (tf.string, tf.float32, ["", "b", "c d"], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        (tf.string, tf.string, ["", "b", "c d"], [["", "x"], ["yy", ""], ["", ""]]),
        (tf.int32, tf.int8, [-(2**31), 0, 2**31 - 1], [[1, -128], [3, 127], [0, 0]]),
        (
            tf.int64,
            tf.bool,
            [-(2**63), -1, 2**63 - 1],
            [[True, False], [False, True], [True, True]],
        ),
        (tf.int64, tf.bfloat16, [1, 2, 3], [[1.0, 2.5], [3.0, 4.0], [-5.0, 0.0]]),
        (tf.int64, tf.float64, [1, 2, 3], [[1e300, 0.1], [3.0, 4.0], [-5.0, 0.0]]),
    ],
)
def test_every_dtype_comes_back_as_it_was(server, key_dtype, value_dtype, keys, values):
    table = de.Variable(key_dtype, value_dtype, 2, name="d", kv_creator=creator_for([server]))
    keys, values = tf.constant(keys, key_dtype), tf.constant(values, value_dtype)
    table.upsert(keys, values)
    found, exists = table.lookup(keys[::-1], return_exists=True)
    assert found.dtype == value_dtype
    assert bool(tf.reduce_all(tf.equal(found, values[::-1])))
    assert exists.numpy().all()
    assert sorted(table.export()[0].numpy().tolist()) == sorted(keys.numpy().tolist())


@pytest.mark.each_choice
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.1, amsgrad=True),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_overwrite_frequency=2),
        lambda: keras.optimizers.Ftrl(0.1),
    ],
    ids=["adam", "momentum with an average", "ftrl"],
)
def test_training_equals_that_of_a_table_in_memory(creator, make):
    tables = [
        de.Variable(dim=DIM, name="t", initializer="normal", kv_creator=kind)
        for kind in (creator, None)
    ]
    optimizers = [de.DynamicEmbeddingOptimizer(make()) for _ in tables]
    for step in range(4):
        rng = np.random.default_rng(step)
        ids, weights = rng.integers(0, 9, size=[5, 2]), rng.normal(size=[5, 2, DIM])
        for table, optimizer in zip(tables, optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(de.embedding_lookup(table, ids) ** 2 * weights)
            [gradient] = tape.gradient(loss, table.trainable_variables)
            optimizer.apply_gradients([(gradient, table.trainable_variables[0])])
    stored, in_memory = map(rows_of, tables)
    assert stored == in_memory
    slots = [table.get_slot_variables(each) for table, each in zip(tables, optimizers, strict=True)]
    assert sorted(each.name for each in slots[0]) == sorted(each.name for each in slots[1])
    for mine in slots[0]:
        [other] = [each for each in slots[1] if each.name == mine.name]
        np.testing.assert_array_equal(mine.lookup(range(12)), other.lookup(range(12)))


def test_an_optimizer_without_a_rule_of_the_engine_trains_too(server):
    class Halving(keras.optimizers.Optimizer):
        """Moves a row by half of its gradient, and counts the steps in a slot."""

        def build(self, variables):
            super().build(variables)
            self.counts = self.add_optimizer_variables(variables, "count")

        def update_step(self, gradient, variable, learning_rate):
            del learning_rate
            count = self.counts[self._get_variable_index(variable)]
            self.assign_add(count, gradient * 0 + 1)
            self.assign_sub(variable, gradient * 0.5)

    table = de.Variable(dim=2, name="h", kv_creator=creator_for([server]))
    with pytest.warns(UserWarning, match="has no rule inside the tables"):
        optimizer = de.DynamicEmbeddingOptimizer(Halving(1.0))
    for _ in range(2):
        gradient = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([4, 5, 4], tf.int64))
        optimizer.apply([gradient], [table])
    assert rows_of(table) == {4: [-2.0, -2.0], 5: [-1.0, -1.0]}
    [slot] = table.get_slot_variables(optimizer)
    np.testing.assert_array_equal(slot.lookup([4, 5, 6]), [[2, 2], [2, 2], [0, 0]])


@pytest.mark.parametrize("mode", execution_modes.NAMES)
def test_rows_are_there_for_the_next_process_and_graph(server, mode):
    creator = creator_for([server])
    earlier = de.Variable(dim=2, name="kept", kv_creator=creator)
    earlier.upsert([1], [[1.0, 2.0]])
    with execution_modes.entered(mode) as runner:
        table = de.Variable(dim=2, name="kept", kv_creator=creator, initializer=7.0)
        if mode == "graph":
            runner.initialize()  # initializes the anchor, which empties tables in memory
        found = runner.run(lambda keys: table.lookup(keys), np.array([1, 2], np.int64))
        np.testing.assert_array_equal(found, [[1.0, 2.0], [7.0, 7.0]])
        runner.run(
            lambda keys, values: table.upsert(keys, values),
            np.array([5], np.int64),
            np.array([[5.0, 5.0]], np.float32),
        )
        assert int(runner.run(lambda: table.size())) == 2
    assert rows_of(earlier) == {1: [1.0, 2.0], 5: [5.0, 5.0]}


def test_a_session_trains_and_saves(server, tmp_path):
    creator, path = creator_for([server]), str(tmp_path / "saved")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("s", dim=2, kv_creator=creator)
        loss = tf.reduce_sum(de.embedding_lookup(table, tf.constant([1, 2, 1], tf.int64)))
        optimizer = de.DynamicEmbeddingOptimizer(tf.compat.v1.train.AdagradOptimizer(1.0))
        step = optimizer.minimize(loss)
        saver = tf.compat.v1.train.Saver()
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step)
        trained = session.run(table.lookup([1, 2]))
        saver.save(session, path)
        session.run(step)
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(table.lookup([1, 2])), trained)
    assert (trained < 0).all()


def test_a_checkpoint_goes_to_memory_and_back(creator, tmp_path):
    table = de.Variable(dim=2, name="c", kv_creator=creator, initializer="uniform")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1))
    ids = tf.range(100, dtype=tf.int64)
    optimizer.apply([tf.IndexedSlices(tf.random.normal([100, 2]), ids)], [table])
    wanted = rows_of(table)
    [slot] = table.get_slot_variables(optimizer)
    accumulated = slot.lookup(ids).numpy()
    de.checkpoint.save(table, tmp_path)
    in_memory = de.Variable(dim=2, name="c", devices=["/CPU:0"] * 3)
    assert de.checkpoint.restore(in_memory, tmp_path) == {"c": 100}
    assert rows_of(in_memory) == wanted
    table.upsert([1, 1000], tf.ones([2, 2]))
    de.checkpoint.restore(table, tmp_path)
    assert rows_of(table) == wanted
    np.testing.assert_array_equal(slot.lookup(ids), accumulated)
    table.clear()
    de.checkpoint.restore(table, tmp_path, only=lambda keys: keys < 3)
    assert rows_of(table) == {key: row for key, row in wanted.items() if key < 3}


def test_slots_are_known_after_another_process_removed_all_rows(creator):
    ours, theirs = (de.Variable(dim=1, name="n", kv_creator=creator) for _ in range(2))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1))
    gradient = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([1], tf.int64))
    optimizer.apply([gradient], [ours])
    owners = theirs.slot_owners()
    assert len(owners) == 1
    theirs.clear()
    optimizer.apply([gradient], [ours])
    assert theirs.slot_owners() == owners


def test_an_export_holds_the_rows_as_they_were(server, tmp_path):
    table = de.Variable(dim=2, name="e", kv_creator=creator_for([server]), initializer="uniform")
    table.upsert([1], [[1.0, 2.0]])
    model = keras.Sequential([keras.Input([], dtype="int64"), table])
    wanted = table.lookup([1, 2]).numpy()
    version = de.export(model, tmp_path)
    table.clear()
    loaded = tf.saved_model.load(version)
    found = loaded.signatures["serving_default"](tf.constant([1, 2], tf.int64))["output_0"]
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(NotImplementedError, match=r"must be saved by de.export"):
        tf.saved_model.save(model, str(tmp_path / "plain"))


def test_pooled_lookups_train(server):
    table = de.Variable(dim=2, name="p", kv_creator=creator_for([server]), initializer=1.0)
    ids = tf.ragged.constant([[1, 2, 1], [], [3]], dtype=tf.int64)
    with tf.GradientTape() as tape:
        rows = de.embedding_lookup_sparse(table, ids, None, combiner="sum")
        loss = tf.reduce_sum(rows)
    np.testing.assert_array_equal(rows, [[3.0, 3.0], [0.0, 0.0], [1.0, 1.0]])
    [gradient] = tape.gradient(loss, table.trainable_variables)
    de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0)).apply([gradient], [table])
    np.testing.assert_array_equal(table.lookup([1, 2, 3, 4])[:, 0], [-1.0, 0.0, 0.0, 1.0])


def test_keras_saves_loads_and_clones_a_model_without_passwords(start, tmp_path):
    server = start("--requirepass", "secret")
    file = tmp_path / "redis.json"
    file.write_text(json.dumps({"redis_connection_mode": 2, "redis_password": "secret"}))
    params = {"redis_host_port": (server.port,), "redis_sentinel_password": "hidden"}
    config = de.RedisTableConfig(str(file), params=params)
    layer = de.layers.Embedding(2, name="saved", kv_creator=de.RedisTableCreator(config))
    model = keras.Sequential([keras.Input([], dtype="int64"), layer])
    layer.table.upsert([1, 2], [[1.0, 1.0], [2.0, 2.0]])
    saved = rows_of(layer.table)
    assert "secret" not in model.to_json()
    assert "hidden" not in model.to_json()
    model.save(tmp_path / "m.keras")
    layer.table.upsert([2], [[9.0, 9.0]])
    live = rows_of(layer.table)
    assert main(["publish", "add", str(tmp_path / "m.keras"), str(tmp_path / "root")]) == 0
    assert rows_of(layer.table) == live
    published = de.Variable(dim=2, name="saved")
    de.checkpoint.restore(published, tmp_path / "root" / "1")
    assert rows_of(published) == saved
    for copy in (keras.models.clone_model(model), keras.models.model_from_json(model.to_json())):
        assert rows_of(copy.get_layer("saved").table) == rows_of(layer.table)
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert rows_of(loaded.get_layer("saved").table) == saved
