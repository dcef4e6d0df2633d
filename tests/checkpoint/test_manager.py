"""`Manager` writes bases and deltas, and keeps the files that its checkpoints need."""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library
from tests.support.models import rows_of


def module(shards=1, name="t"):
    result = tf.Module()
    result.dense = tf.Variable(0.0)
    result.table = de.Variable(dim=2, name=name, devices=["/CPU:0"] * shards)
    return result


def change(owner, rng, step):
    """Inserts, changes and removes some rows."""
    keys = rng.integers(0, 2000, size=50)
    owner.table.upsert(np.unique(keys), rng.normal(size=[len(np.unique(keys)), 2]).astype("f4"))
    owner.table.remove(rng.integers(0, 2000, size=20))
    owner.dense.assign(step)


def test_on_a_file_system_of_tensorflows():
    owner = module()
    manager = de.checkpoint.Manager(owner, "ram://incremental")
    rng = np.random.default_rng(0)
    for step in range(3):
        change(owner, rng, step)
        manager.save()
    other = module()
    assert de.checkpoint.Manager(other, "ram://incremental").restore() == "ram://incremental/ckpt-3"
    assert rows_of(other.table) == rows_of(owner.table)


def delta_of(owner, rng):
    """Changes some rows of many, and removes none."""
    keys = np.unique(rng.integers(0, 20_000, size=20))
    owner.table.upsert(keys, rng.normal(size=[len(keys), 8]).astype("f4"))


def test_chains_of_shards_are_compacted_together(tmp_path):
    owner = module(2)
    owner.table.upsert(np.arange(3000), np.zeros([3000, 2], np.float32))
    keys = np.arange(3000)
    shards = library.de_shard_of(tf.constant(keys), num_shards=2).numpy()
    manager = de.checkpoint.Manager(owner, tmp_path, max_to_keep=2, compact_after=4)
    manager.save()
    for step in range(20):  # many rows of one shard and few of the other change
        changed = np.append(keys[shards == 0][:1000], keys[shards == 1][:1])
        owner.table.upsert(changed, np.full([len(changed), 2], step, np.float32))
        expected, prefix = rows_of(owner.table), manager.save()
        manager.wait()
        assert len(list(tmp_path.glob("ckpt-*.data-r*"))) <= 8 * 2
    other = module(3)
    de.checkpoint.restore(other, prefix)
    assert rows_of(other.table) == expected


@pytest.mark.parametrize("tier", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compaction_costs_what_changed(tmp_path, tier):
    owner, rng = tf.Module(), np.random.default_rng(0)
    disk = de.DiskTier(str(tmp_path / "tier"), memory_bytes=100_000)
    owner.table = de.Variable(dim=8, name="t", tier=disk if tier else None)
    owner.table.upsert(np.arange(20_000), np.zeros([20_000, 8], np.float32))
    folder = tmp_path / "saves"
    manager = de.checkpoint.Manager(owner, folder, max_to_keep=2, compact_after=4)
    manager.save()
    [base] = folder.glob("ckpt-1.data-r*")
    sizes, expected = {}, {}
    for step in range(40):
        delta_of(owner, rng)
        expected[manager.save()] = rows_of(owner.table)
        manager.wait()
        sizes |= {each: each.stat().st_size for each in folder.glob("ckpt-*.data-r*")}
        for prefix in manager.checkpoints if step % 8 == 7 else ():
            other = tf.Module()
            other.table = de.Variable(dim=8, name="t")
            tf.train.Checkpoint(target=other).read(prefix).expect_partial()
            assert rows_of(other.table) == expected[prefix]
    assert base.exists()
    assert len(list(folder.glob("ckpt-*.data-r*"))) < 12
    # Compacting into bases would write the base again ten times.
    assert sum(sizes.values()) < 2 * sizes[base]


def test_removed_rows_leave_the_files_after_a_compaction(tmp_path):
    owner, rng = tf.Module(), np.random.default_rng(0)
    owner.table = de.Variable(dim=8, name="t")
    key = 123_456_789_123_456_789
    owner.table.upsert([key, *range(20_000)], np.zeros([20_001, 8], np.float32))
    manager = de.checkpoint.Manager(owner, tmp_path, max_to_keep=2, compact_after=4)

    def save():
        manager.save()
        manager.wait()
        return [
            key.to_bytes(8, "little") in each.read_bytes() for each in tmp_path.glob("*.data-r*")
        ]

    for _ in range(6):
        delta_of(owner, rng)
        assert any(save())
    owner.table.remove([key])
    for _ in range(7):
        holds = save()
        delta_of(owner, rng)
    assert not any(holds)


@pytest.mark.parametrize("policy", [de.EvictionLRU, de.EvictionLFU])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_restored_delta_evicts_no_row(tmp_path, policy, shards):
    table = de.Variable(
        dim=1, name="users", devices=["/CPU:0"] * shards, eviction=policy(max_rows=60)
    )
    manager = de.checkpoint.Manager(table, str(tmp_path))
    table.upsert(np.arange(60), np.ones([60, 1], np.float32))
    manager.save()
    for key in range(100, 140):  # evicts rows
        table.upsert([key], [[2.0]])
    table.remove(table.export()[0][:20])
    table.upsert(np.arange(200, 218), np.ones([18, 1], np.float32))
    manager.save()
    rows = rows_of(table)
    manager.restore()
    assert rows_of(table) == rows


def test_rows_that_a_restore_evicts_stay_away(tmp_path):
    saved, bounded, again = (
        de.Variable(dim=1, name="users", devices=["/CPU:0"], eviction=eviction)
        for eviction in (None, de.EvictionLRU(max_rows=100), None)
    )
    saved.upsert(np.arange(1000), np.ones([1000, 1], np.float32))
    de.checkpoint.Manager(saved, str(tmp_path)).save()
    manager = de.checkpoint.Manager(bounded, str(tmp_path))
    manager.restore()
    bounded.upsert([5000], [[1.0]])
    assert de.checkpoint.restore(again, manager.save()) == {"users": int(bounded.size())}


@pytest.mark.parametrize("shards", [1, 2])
def test_deltas_that_cannot_be_joined_end_in_a_new_base(tmp_path, shards, caplog):
    owner, rng = module(shards), np.random.default_rng(0)
    manager = de.checkpoint.Manager(owner, tmp_path, compact_after=2)
    for step in range(3):
        change(owner, rng, step)
        if step == 2:
            base = min(tmp_path.glob("ckpt-1.data-r*"))
            content = bytearray(base.read_bytes())
            content[len(content) // 2] ^= 1
            base.write_bytes(content)
        manager.save()
    manager.wait()
    change(owner, rng, 3)
    expected = rows_of(owner.table)
    prefix = manager.save()
    bases = ["0" * 32] * shards  # the id of no parent
    assert [report["parent"] for report in manager.reports["t"]] == bases
    assert "could not be compacted" in caplog.text
    other = module()
    assert de.checkpoint.restore(other, prefix) == {"t": len(expected)}
    assert rows_of(other.table) == expected


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (1, 1), (2, 2)])
def test_another_process_goes_on_with_deltas_or_with_another_number_of_tables(
    tmp_path, before, after
):
    owner, rng = module(before), np.random.default_rng(0)
    owner.table.upsert(np.arange(2000), np.zeros([2000, 2], np.float32))
    manager = de.checkpoint.Manager(owner, tmp_path)
    manager.save()
    change(owner, rng, 1)
    newest = manager.save()
    resumed = module(after)
    manager = de.checkpoint.Manager(resumed, tmp_path)
    assert manager.restore() == newest
    assert rows_of(resumed.table) == rows_of(owner.table)
    change(resumed, rng, 2)
    manager.save()
    assert (sum(report["rows"] for report in manager.reports["t"]) < 200) == (before == after)
    other = module()
    de.checkpoint.restore(other, tmp_path)
    assert rows_of(other.table) == rows_of(resumed.table)


def test_threads_save_one_after_another(tmp_path):
    table = de.Variable(dim=1, name="t")
    manager = de.checkpoint.Manager(table, tmp_path)

    def save(key):
        table.upsert([key], [[1.0]])
        manager.save()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(save, range(18)))
    table.clear()
    assert manager.restore() == str(tmp_path / "ckpt-18")
    assert int(table.size()) == 18


def test_incomplete_checkpoints_are_not_taken_for_none(tmp_path):
    owner, rng = module(), np.random.default_rng(0)
    manager = de.checkpoint.Manager(owner, tmp_path)
    assert manager.restore() is None
    for step in range(2):
        change(owner, rng, step)
        manager.save()
    [base] = tmp_path.glob("ckpt-1.data-r*")
    base.unlink()
    with pytest.raises(tf.errors.DataLossError, match=base.name):
        de.checkpoint.Manager(module(), tmp_path).restore()
    for index in tmp_path.glob("*.index"):
        index.write_bytes(b"")
    with pytest.raises(tf.errors.DataLossError, match="ckpt-2"):
        de.checkpoint.Manager(module(), tmp_path).restore()


def test_bad_arguments(tmp_path):
    de.checkpoint.Manager(tf.Module(), tmp_path, max_to_keep=np.int64(3))
    for arguments in ({"max_to_keep": 0}, {"compact_after": 0}, {"base_every": -1}):
        [name] = arguments
        with pytest.raises(ValueError, match=f"`{name}` must be an integer of at least 1"):
            de.checkpoint.Manager(tf.Module(), "unused", **arguments)
    for name in ("", "a/b", 5):
        with pytest.raises(ValueError, match="without a slash"):
            de.checkpoint.Manager(tf.Module(), "unused", name=name)
    for wrong in ("run[1]", "back\\slash"):
        for place in ({"directory": wrong}, {"directory": "unused", "name": wrong}):
            with pytest.raises(ValueError, match="treats them as patterns"):
                de.checkpoint.Manager(tf.Module(), **place)
    de.checkpoint.IncrementalCheckpoint("unused", save_freq=np.int64(3))
    for wrong, error in ((0, ValueError), (True, TypeError), ("batch", TypeError)):
        with pytest.raises(error, match="save_freq"):
            de.checkpoint.IncrementalCheckpoint("unused", save_freq=wrong)


def test_a_graph_neither_saves_nor_restores(tmp_path):
    manager = de.checkpoint.Manager(module(), tmp_path)
    manager.save()
    for method in (manager.save, manager.restore):
        message = rf"Manager.{method.__name__}` must be called in eager mode.*train.Saver"
        refused = pytest.raises(RuntimeError, match=message)
        with refused, tf.Graph().as_default(), tf.compat.v1.Session():
            method()
        with refused:
            tf.function(method)()
    assert len(manager.checkpoints) == 1


def built_by_its_first_batch():
    """Returns a model without input, so that `fit` builds it."""
    keras.utils.set_random_seed(0)
    table = de.layers.Embedding(4, initializer="normal", name="users")
    model = keras.Sequential([table, keras.layers.Dense(1, activation="sigmoid")])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    return model


@pytest.mark.parametrize("is_built", [True, False])
def test_the_callback_resumes_a_broken_run(tmp_path, ratings, ratings_model, is_built):
    users, _, pleases = ratings

    def fit(model, epochs, *callbacks):
        keras.utils.set_random_seed(0)
        model.fit(users, pleases, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)

    make = ratings_model if is_built else built_by_its_first_batch
    whole, broken, resumed = make(), make(), make()
    fit(whole, 3)
    fit(broken, 2, de.checkpoint.IncrementalCheckpoint(tmp_path, save_freq=8))
    callback = de.checkpoint.IncrementalCheckpoint(tmp_path)
    fit(resumed, 1, callback)
    assert len(callback.manager.checkpoints) == 5
    assert int(resumed.optimizer.iterations) == int(whole.optimizer.iterations)
    np.testing.assert_array_equal(
        resumed.predict(users, verbose=0), whole.predict(users, verbose=0)
    )
    other = ratings_model()
    de.checkpoint.Manager(other, tmp_path).restore()
    np.testing.assert_array_equal(
        other.predict(users, verbose=0), resumed.predict(users, verbose=0)
    )


def test_the_callback_restores_a_model_only_before_its_first_fit(tmp_path, ratings, ratings_model):
    users, _, pleases = ratings
    callback = de.checkpoint.IncrementalCheckpoint(tmp_path, save_freq=10**6)
    model, other = ratings_model(), ratings_model()
    table, user = model.layers[0].table, users[:1]

    def fit(model, *more):
        model.fit(users[1:], pleases[1:], verbose=0, callbacks=[callback, *more])

    fit(model)
    callback.manager.save()
    steps = int(model.optimizer.iterations)
    other.evaluate(users, pleases, verbose=0, callbacks=[callback])
    fit(model)
    assert int(model.optimizer.iterations) == 2 * steps
    de.erase(model, user)
    table.upsert([10**9], [[1.0] * 4])
    before = []

    class Before(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):  # noqa: ARG002
            before.append(rows_of(self.model.layers[0].table))

    kept = rows_of(table)
    assert user[0] not in kept
    fit(model, Before())
    assert before[0] == kept
    assert int(model.optimizer.iterations) == 3 * steps
    fit(other)  # begins with the checkpoint
    assert int(other.optimizer.iterations) == 2 * steps
    callback.manager.save()
    latest = ratings_model()
    de.checkpoint.Manager(latest, tmp_path).restore()
    assert rows_of(latest.layers[0].table) == rows_of(other.layers[0].table)


def test_a_restore_that_finds_no_table_of_the_target_fails(tmp_path):
    saved = module()
    saved.table.upsert([1], [[1.0, 2.0]])
    de.checkpoint.Manager(tf.train.Checkpoint(model=saved), tmp_path).save()
    for target in (module(), de.Variable(dim=2), tf.train.Checkpoint(models=module())):
        with pytest.raises(ValueError, match=r"holds only other tables\. Give the manager the"):
            de.checkpoint.Manager(target, tmp_path).restore()
    later = tf.train.Checkpoint()
    assert de.checkpoint.Manager(later, tmp_path).restore() is not None
    later.model = module()  # TensorFlow restores what is attached later
    assert rows_of(later.model.table) == {1: [1.0, 2.0]}


def print_what_saves_log(folder):
    tf.get_logger().addHandler(logging.StreamHandler(sys.stdout))
    manager = de.checkpoint.Manager(module(), folder)
    manager.save()
    manager.save()
    print("saved")


def test_a_save_logs_no_advice_of_tensorflow_to_its_own_callers(forks, tmp_path):
    done = forks.call(print_what_saves_log, str(tmp_path))
    assert done.stdout.splitlines() == ["saved"], done.stderr[-4000:]


def test_a_checkpoint_that_is_deleted_during_a_save_does_not_count_as_kept(tmp_path, monkeypatch):
    users = de.Variable(dim=1, name="users")
    manager = de.checkpoint.Manager(users, str(tmp_path), max_to_keep=2)
    first, _ = manager.save(), manager.save()
    write = tf.train.Checkpoint.write

    def written(*arguments, **options):
        prefix = write(*arguments, **options)
        (tmp_path / "ckpt-2.index").unlink()
        return prefix

    monkeypatch.setattr(tf.train.Checkpoint, "write", written)
    third = manager.save()
    assert manager.checkpoints == [first, third]
