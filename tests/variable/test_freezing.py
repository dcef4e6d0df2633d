"""Frozen rows and their slots stay bit for bit, and later rows learn like dense rows."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.snapshot.file import SnapshotFile
from examples.sqlite_storage import SqliteCreator
from tests.optimizers.test_steps import own

OLD, NEW, BOTH = np.arange(300), np.arange(300, 320), np.arange(320)
ROWS = np.random.default_rng(0).normal(size=[len(OLD), 2]).astype(np.float32)
ROWS[0] = -0.0  # adding zero would change the bits
AVERAGED = {"weight_decay": 0.01, "use_ema": True, "ema_overwrite_frequency": 2}
pytestmark = pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")


OPTIMIZERS = {
    "sgd": functools.partial(keras.optimizers.SGD, 0.1),
    "adam": functools.partial(keras.optimizers.Adam, 0.1, **AVERAGED),
    "rowwise": functools.partial(de.optimizers.RowwiseAdagrad, 0.1),
    "gathered": functools.partial(own(keras.optimizers.SGD), 0.1, **AVERAGED),
    "tf1": functools.partial(tf.compat.v1.train.AdamOptimizer, 0.1),
}


def variable(**arguments):
    users = de.Variable(dim=2, initializer=0.5, name="users", **arguments)
    users.upsert(OLD, ROWS)
    return users


def slices(keys, scale=1.0):
    values = scale * np.stack([np.cos(keys), np.sin(keys) - 2], 1)
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(keys, tf.int64))


@pytest.mark.parametrize("place", ["bounded", "shards", "tier"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_old_rows_stay_and_new_rows_learn_like_dense_rows(name, place, tmp_path):
    bound = de.EvictionLRU(max_rows=10**6) if place == "bounded" else None
    tier = de.DiskTier(str(tmp_path), memory_bytes=3000) if place == "tier" else None
    users = variable(eviction=bound, tier=tier, devices=["/CPU:0"] * (1 + 2 * (place == "shards")))
    optimizer, reference = de.DynamicEmbeddingOptimizer(OPTIMIZERS[name]()), OPTIMIZERS[name]()

    def state():
        slots = [slot.lookup(OLD) for slot in users.get_slot_variables(optimizer)]
        return [part.numpy().tobytes() for part in (users.lookup(OLD), *slots)]

    def train(gradient):
        optimizer.apply_gradients([(gradient, users.trainable_variables[0])])

    if name != "tf1":  # the first call traces it, before rows are frozen
        signature = [tf.IndexedSlicesSpec([None, 2], indices_shape=[None])]
        train = tf.function(train, input_signature=signature)
    train(slices(OLD[1:]))
    users.freeze()
    frozen = state()
    dense, other = tf.Variable(tf.fill([20, 2], 0.5)), tf.Variable([0.0])
    if name != "tf1":
        reference.build([dense, other])
    reference.apply_gradients([(tf.constant([0.0]), other)])  # counts the first step
    for number in range(1, 4):
        before = users.export_keys_and_scores()[1] if bound else None
        train(slices(BOTH, number))
        reference.apply_gradients([(slices(NEW, number).values, dense)])
    assert state() == frozen
    np.testing.assert_allclose(users.lookup(NEW), dense, rtol=1e-5)
    if bound:  # a frozen row is in use: its time is that of the last step
        assert max(before) < min(users.export_keys_and_scores()[1])


@pytest.mark.parametrize("name", ["sgd", "gathered"])
def test_rows_that_come_later_learn_until_the_next_freeze(name):
    users = variable(admission=de.AdmissionCount(2))
    optimizer, keys = de.DynamicEmbeddingOptimizer(OPTIMIZERS[name]()), np.array([0, 1, 300])

    def moved():
        before = users.lookup(keys).numpy()
        optimizer.apply_gradients([(slices(keys), users.trainable_variables[0])])
        return (users.lookup(keys).numpy() != before).any(1).tolist()

    assert moved() == [True, True, False]  # a new key waits for its second step
    users.freeze()
    users.remove([1])
    users.upsert([0, 1], [[9.0, 9.0], [1.0, 1.0]])  # changes a frozen row, and makes a new one
    assert moved() == [False, True, True]
    users.freeze()
    assert moved() == [False, False, False]
    users.unfreeze()
    assert moved() == [True, True, True]


@pytest.mark.parametrize("name", ["adam", "gathered"])
def test_checkpoints_keep_frozen_rows_and_exports_have_no_marks(name, tmp_path):
    users, optimizer = variable(), de.DynamicEmbeddingOptimizer(OPTIMIZERS[name]())
    users.freeze()
    users.upsert(NEW, tf.ones([20, 2]))
    de.checkpoint.save(users, tmp_path / "saved")
    other = de.Variable(dim=2, name="users", devices=["/CPU:0"] * 2)
    de.checkpoint.restore(other, tmp_path / "saved")
    optimizer.apply_gradients([(slices(BOTH), other.trainable_variables[0])])
    assert other.lookup(OLD).numpy().tobytes() == ROWS.tobytes()
    assert (other.lookup(NEW).numpy() != 1).all()
    model = keras.Sequential([keras.Input([], dtype="int64"), other])
    served = tf.saved_model.load(de.export(model, tmp_path / "served"))
    found = served.signatures["de_lookup/users"](ids=tf.constant(BOTH))
    np.testing.assert_array_equal(found["embeddings"], other.lookup(BOTH))
    slots = [SnapshotFile(str(each)).info["slots"] for each in tmp_path.glob("served/**/*.de")]
    assert slots == [[], []]


def test_a_storage_and_a_graph_refuse(tmp_path):
    stored = variable(kv_creator=SqliteCreator({"path": str(tmp_path / "{name}.sqlite")}))
    users = variable()
    for refused in (stored.freeze, tf.function(users.freeze)):
        with pytest.raises(NotImplementedError, match="use trainable=False"):
            refused()
    users.freeze()
    de.checkpoint.save(users, tmp_path / "saved")
    with pytest.raises(NotImplementedError, match="`unfreeze` before you save"):
        de.checkpoint.restore(stored, tmp_path / "saved")
    de.checkpoint.restore(stored, tmp_path / "saved", slots=False)
    assert stored._table.slots() == {}
