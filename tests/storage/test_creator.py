"""`KVCreator` is the interface for new storages. Storages refuse some features."""

import json
import pathlib
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from redis.crc import key_slot

import de_core as de
from de_core.storage.redis.store import _spread_tags
from examples.sqlite_storage import SqliteCreator, SqliteRows
from tests.support.models import rows_of

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def creator(tmp_path):
    return SqliteCreator({"path": str(tmp_path / "{name}.sqlite")})


def test_the_example_is_short_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    example = ROOT / "examples/sqlite_storage.py"
    assert len(example.read_text().splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    for wanted in ([1.0, 0.5], [2.0, 1.0]):
        runpy.run_path(str(example), run_name="__main__")
        assert json.loads(capsys.readouterr().out) == [wanted] * 2


def test_a_storage_trains_restores_and_forgets_like_memory(creator, tmp_path):
    tables = [
        de.Variable(dim=2, name="t", initializer="uniform", kv_creator=kind)
        for kind in (creator, None)
    ]
    for table in tables:
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1))
        for seed in range(3):
            ids = tf.random.stateless_uniform([8], [seed, 0], 0, 6, tf.int64)
            gradient = tf.random.stateless_normal([8, 2], [seed, 1])
            optimizer.apply([tf.IndexedSlices(gradient, ids)], [table])
        table.remove([0, 1])
    stored, in_memory = map(rows_of, tables)
    assert stored == in_memory
    stats = tables[0].stats()
    assert stats["rows"] == len(stored)
    de.checkpoint.save(tables[0], tmp_path / "c")
    tables[0].clear()
    assert int(tables[0].size()) == 0
    de.checkpoint.restore(tables[0], tmp_path / "c")
    assert rows_of(tables[0]) == stored


class OwnAdagrad(keras.optimizers.Adagrad):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)


@pytest.mark.filterwarnings("ignore:OwnAdagrad has no rule inside the tables")
@pytest.mark.parametrize("kind", [keras.optimizers.Adagrad, OwnAdagrad])
def test_slots_in_the_storage_keep_their_initial_value(creator, kind):
    found = []
    for storage in (creator, None):
        table = de.Variable(dim=1, name="k", initializer="zeros", kv_creator=storage)
        optimizers = [
            de.DynamicEmbeddingOptimizer(kind(0.1, initial_accumulator_value=initial))
            for initial in (0.1, 0.2)
        ]
        for optimizer, ids in zip(optimizers, ([1, 2], [1, 3]), strict=True):
            optimizer.build([])
            optimizer._slots_id.assign(optimizers[0]._slots_id)  # as a restored optimizer has it
            optimizer.apply(
                [tf.IndexedSlices(tf.ones([2, 1]), tf.constant(ids, tf.int64))], [table]
            )
            if storage is not None:  # the next process
                table = de.Variable(dim=1, name="k", initializer="zeros", kv_creator=storage)
        found.append(rows_of(table))
    assert found[0] == found[1]


def test_a_report_has_no_scores_that_did_not_read_the_storage(creator, tmp_path):
    class Model(tf.Module):
        def __init__(self, kind):
            super().__init__()
            self.table = de.Variable(dim=2, name="t", kv_creator=kind)
            self.table.upsert([1, 2], [[1.0, 2.0], [3.0, 4.0]])

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def __call__(self, ids):
            return {"rows": self.table.lookup(ids)}

    exported = [
        de.export(Model(kind), tmp_path / str(kind is None), sample={"ids": [1, 2]})
        for kind in (creator, None)
    ]
    assert [each.report.get("scores") for each in exported] == [
        None,
        {"rows": {"max": 0.0, "mean": 0.0}},
    ]
    for version in exported:
        served = tf.saved_model.load(version).signatures["serving_default"]
        assert served(ids=tf.constant([2], tf.int64))["rows"].numpy().tolist() == [[3.0, 4.0]]


def test_initial_rows_are_those_of_the_checkpoint_after_a_restore(creator, tmp_path):
    de.checkpoint.save(de.Variable(dim=1, name="i", initializer=0.5), tmp_path / "c")
    table = de.Variable(dim=1, name="i", initializer=0.25, kv_creator=creator)
    de.checkpoint.restore(table, tmp_path / "c")
    assert table.find_or_insert([7]).numpy().tolist() == [[0.5]]
    assert table.lookup([7, 8]).numpy().tolist() == [[0.5], [0.5]]
    table.accum([9], [[0.0]], [[3.0]])
    assert float(table.lookup([9])[0, 0]) == 3.0


@pytest.mark.parametrize("saves_slots", [True, False])
def test_a_merged_row_has_no_slots_of_the_row_that_it_replaces(creator, tmp_path, saves_slots):
    tables = [de.Variable(dim=1, name="m", kv_creator=kind) for kind in (creator, None)]
    found = []
    for table in tables:
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1, 0.5))
        gradient = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 2], tf.int64))
        optimizer.apply([gradient], [table])
        saved = table if saves_slots else de.Variable(dim=1, name="m")
        saved.upsert([1], [[7.0]])
        only = tf.constant([1], tf.int64)
        de.checkpoint.save(saved, tmp_path / "c")
        de.checkpoint.restore(table, tmp_path / "c", merge=True, slots=not saves_slots, only=only)
        [slot] = table.get_slot_variables(optimizer)
        found.append([float(table.lookup([1])[0, 0]), *slot.lookup([1, 2])[:, 0].numpy().tolist()])
    assert found == [[7.0, 0.5, 1.5]] * 2


def test_a_refused_restore_changes_no_initial_row(creator, tmp_path):
    saved = de.Variable(dim=1, name="f", initializer=0.5)
    saved.upsert([1], [[7.0]])
    saved.freeze()
    de.checkpoint.save(saved, tmp_path / "c")
    table = de.Variable(dim=1, name="f", initializer=0.25, kv_creator=creator)
    with pytest.raises(NotImplementedError, match="Frozen rows need a table in main memory"):
        de.checkpoint.restore(table, tmp_path / "c")
    assert table.find_or_insert([7]).numpy().tolist() == [[0.25]]


def test_threads_of_one_process_lose_no_update(creator):
    table = de.Variable(dim=1, name="threads", kv_creator=creator)

    def add(_):
        table.accum([1, 2], tf.zeros([2, 1]), tf.ones([2, 1]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(40)))
    np.testing.assert_array_equal(table.lookup([1, 2]), [[40.0], [40.0]])


def test_rows_of_another_kind_under_a_name_are_refused(creator):
    de.Variable(dim=2, name="mine", kv_creator=creator)
    with pytest.raises(ValueError, match=r"'dim': 2.*Received: .*'dim': 3"):
        de.Variable(dim=3, name="mine", kv_creator=creator)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"devices": ["/CPU:0"] * 2}, ValueError, "`devices` must be None or one device"),
        ({"eviction": de.EvictionLRU(max_rows=3)}, NotImplementedError, "need rows in main memory"),
        ({"admission": de.AdmissionCount(2)}, NotImplementedError, "need rows in main memory"),
        (
            {"restrict_policy": de.TimestampRestrictPolicy},
            NotImplementedError,
            "need rows in main memory",
        ),
    ],
)
def test_features_of_tables_in_memory_are_refused(creator, arguments, error, message):
    with pytest.raises(error, match=message):
        de.Variable(dim=2, kv_creator=creator, **arguments)


def test_a_storage_may_have_a_lock_of_its_own(tmp_path):
    class Locked(SqliteRows):
        def __init__(self, path):
            super().__init__(path)
            self._lock = threading.Lock()

        def read(self, columns, keys):
            assert self._lock.acquire(blocking=False)
            try:
                return super().read(columns, keys)
            finally:
                self._lock.release()

    store = Locked(tmp_path / "rows")
    assert store.read_together(["value"], [b"key"]) == [[None]]
    assert store.swap([b"key"], {"value": [None]}, {"value": [b"row"]}) == [True]


def test_a_manager_saves_whole_tables_and_other_objects_are_refused(creator, tmp_path):
    class Wrong(de.KVCreator):
        def create(self, **_):
            return {}

    with pytest.raises(TypeError, match=r"`create` must return a de.RowStore. Received: .*dict"):
        de.Variable(kv_creator=Wrong())
    table = de.Variable(dim=1, name="d", kv_creator=creator)
    manager = de.checkpoint.Manager(table, tmp_path)
    table.upsert([1], [[1.0]])
    manager.save()
    table.upsert([1], [[2.0]])
    manager.save()
    table.upsert([1], [[3.0]])
    assert manager.restore() is not None
    assert float(table.lookup([1])[0, 0]) == 2.0
    manager.restore(manager.checkpoints[0])
    assert float(table.lookup([1])[0, 0]) == 1.0


def test_a_function_chooses_rows_of_a_base_and_its_delta(creator, tmp_path):
    saved = de.Variable(dim=1, name="d")
    manager = de.checkpoint.Manager(saved, tmp_path)
    saved.upsert([1, 2, 3], [[1.0], [2.0], [3.0]])
    manager.save()
    saved.remove([1])
    saved.upsert([2], [[5.0]])
    path = manager.save()
    table = de.Variable(dim=1, name="d", kv_creator=creator)
    assert de.checkpoint.restore(table, path, only=lambda keys: keys < 3) == {"d": 1}
    assert rows_of(table) == {2: [5.0]}


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"redis_host_prot": [1]}, ValueError, "Did you mean 'redis_host_port'"),
        ({"redis_host_port": 6379}, TypeError, "`redis_host_port` must be a list"),
        ({"redis_host_port": ["1"]}, TypeError, "`redis_host_port` must be a list of int"),
        ({"redis_host_ip": [5]}, TypeError, "`redis_host_ip` must be a list of str"),
        ({"redis_host_port": [-5]}, ValueError, "`redis_host_port`, from 1 to 65535"),
        ({"redis_host_port": [1, 2]}, ValueError, "There must be one `redis_host_port`"),
        ({"redis_connection_mode": 3}, ValueError, "must be one of 0, 1, 2"),
        ({"table_store_mode": 1}, ValueError, "`table_store_mode` must be one of 2"),
        ({"keys_sending_size": 0}, ValueError, "`keys_sending_size` must be at least 1"),
        ({"storage_slice": 16385}, ValueError, "`storage_slice` must be at most 16384"),
        ({"redis_hash_tags_runtime": ["a", "b", "a"]}, ValueError, "a hash tag of its own"),
        ({"redis_connection_mode": 0, "redis_db": 2}, ValueError, "only `redis_db` 0"),
    ],
)
def test_a_configuration_is_checked(params, error, message):
    with pytest.raises(error, match=message):
        de.RedisTableConfig(params=params)


@pytest.mark.parametrize("count", [1, 3, 32, 16384])
def test_slices_are_spread_evenly_over_the_slots_of_a_cluster(count):
    slots = [key_slot(tag.encode()) for tag in _spread_tags(count)]
    assert [(slot * count + count - 1) // 16384 for slot in slots] == list(range(count))


def test_a_configuration_of_tfra_is_read(tmp_path, monkeypatch):
    file = tmp_path / "redis.json"
    file.write_text(json.dumps({"redis_host_ip": ["a"], "model_tag_new": "m", "table_store_mode": 1,
                                "model_lib_abs_dir": "/tmp", "storage_slice": 4}))  # fmt: skip
    monkeypatch.setenv("REDIS_CONFIG", str(file))
    for config in (
        de.RedisTableConfig(file),
        de.RedisTableConfig(redis_config_abs_dir_env="REDIS_CONFIG"),
    ):
        assert config.settings.redis_host_ip == ("a",)
        assert config.settings.model_tag_runtime == "m"
        assert config.settings.slices == 4
        assert config.get_config()["redis_config_abs_dir"] == str(file)
    with pytest.raises(ValueError, match="needs a file, the environment variable of one"):
        de.RedisTableConfig()
    with pytest.raises(TypeError, match=r"must be a de.RedisTableConfig"):
        de.RedisTableCreator({"redis_host_port": [1]})
