"""Tests every documented promise of `Variable.restrict` and of policies, and bad arguments."""

import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import Sequential, layers
from keras.optimizers import SGD

import de_core as de

LRU = de.EvictionLRU
POLICIES = [de.TimestampRestrictPolicy, de.FrequencyRestrictPolicy]


def new(tables=1, **arguments):
    return de.Variable(dim=2, devices=["/CPU:0"] * tables, **arguments)


def keys_of(variable):
    return sorted(variable.export()[0].numpy().tolist())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("tables", [1, 2, 5])
def test_restrict_keeps_exactly_the_best_of_all_tables(policy, tables):
    users = new(tables, restrict_policy=policy)
    users.upsert(range(200), tf.ones([200, 2]))
    best = list(range(40, 48))
    for key in best:
        users.upsert([key], [[2.0, 2.0]])
    assert users.restrict(8) is None
    assert keys_of(users) == best
    assert int(users.restrict_policy.status.size()) == 8
    users.restrict(0)
    assert int(users.size()) == 0


@pytest.mark.parametrize("tables", [1, 3])
def test_nothing_happens_up_to_the_trigger(tables):
    users = new(tables, restrict_policy=de.TimestampRestrictPolicy)
    users.upsert(range(20), tf.ones([20, 2]))
    users.restrict(5, trigger=20)
    assert int(users.size()) == 20
    users.upsert([20], [[1.0, 1.0]])
    users.restrict(5, trigger=20)
    assert int(users.size()) == 5
    users.restrict(50)
    assert int(users.size()) == 5


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("tables", [1, 3])
def test_expired_rows_are_not_among_those_that_stay(policy, tables):
    users = new(tables, restrict_policy=policy, eviction=de.EvictionTTL(steps=2))
    optimizer = de.DynamicEmbeddingOptimizer(SGD(1.0))

    def step(keys):
        ids = tf.constant(keys, tf.int64)
        optimizer.apply([tf.IndexedSlices(tf.ones([len(keys), 2]), ids)], [users])

    users.upsert([1, 2, 3, 4] * 9, tf.ones([36, 2]))  # used most often, but expires soon
    for _ in range(3):
        step([10, 11, 12, 13])
    step([11, 12, 13])
    step([12, 13])
    assert users.contains([1, 2, 3, 4, 10]).numpy().tolist() == [False] * 4 + [True]
    users.restrict(3)
    assert keys_of(users) == [11, 12, 13]
    assert int(users.size()) == 3
    for _ in range(3):
        step([20])
    users.restrict(3)
    assert int(users.size()) == 1
    users.upsert([21], tf.ones([1, 2]))
    for _ in range(3):
        step([20])
    users.restrict(0, trigger=1)
    assert keys_of(users) == [20]


def test_slots_and_status_follow_the_rows():
    layer = de.layers.Embedding(2, restrict_policy=de.FrequencyRestrictPolicy)
    model = Sequential([layer, layers.Dense(1)])
    model.compile(de.DynamicEmbeddingOptimizer("adagrad"), "mse")
    model.fit(tf.range(64, dtype=tf.int64), tf.zeros([64, 1]), batch_size=16, verbose=0)
    model.fit(tf.range(10, dtype=tf.int64), tf.zeros([10, 1]), verbose=0)
    table = layer.table
    slot = f"{model.optimizer.slots_owner.numpy().decode()}/accumulator"
    table.restrict(10)
    assert keys_of(table) == list(range(10))
    status, counts = table.restrict_policy.status.export()
    assert sorted(status.numpy().tolist()) == list(range(10))
    assert counts.dtype == tf.int64
    assert set(counts.numpy().ravel().tolist()) == {2}
    assert sorted(table.tables[0].export(slot)[0].numpy().tolist()) == list(range(10))
    assert table.restrict_policy.status.lookup([3, 63]).numpy().tolist() == [[2], [0]]


def test_times_are_microseconds_in_64_bits_and_rise():
    users = new(restrict_policy=de.TimestampRestrictPolicy)
    for key in range(50):
        users.upsert([key], [[0.0, 0.0]])
    times = users.restrict_policy.status.lookup(range(50)).numpy().ravel()
    assert times.dtype == np.int64
    assert (np.diff(times) > 0).all()
    assert abs(times[-1] / 1e6 - float(tf.timestamp())) < 60


def test_apply_update_marks_rows_that_are_there():
    users = new(2, restrict_policy=de.FrequencyRestrictPolicy)
    users.upsert([1, 2], tf.zeros([2, 2]))
    assert users.restrict_policy.apply_update([[1], [9]]) is None
    assert users.restrict_policy.status.lookup([1, 2, 9]).numpy().ravel().tolist() == [2, 1, 0]
    assert int(users.size()) == 2


def test_string_keys_are_restricted():
    users = new(2, key_dtype=tf.string, restrict_policy=de.TimestampRestrictPolicy)
    users.upsert([f"user{i}" for i in range(50)], tf.ones([50, 2]))
    users.upsert(["user7", "user8"], tf.ones([2, 2]))
    users.restrict(2)
    assert keys_of(users) == [b"user7", b"user8"]


def test_restrict_inside_a_function():
    users = new(2, restrict_policy=de.TimestampRestrictPolicy)

    @tf.function
    def fill_and_restrict(first, count):
        users.upsert(first + tf.range(30, dtype=tf.int64), tf.ones([30, 2]))
        users.restrict(count, trigger=40)
        return users.size()

    assert int(fill_and_restrict(tf.constant(0, tf.int64), tf.constant(8))) == 30
    assert int(fill_and_restrict(tf.constant(100, tf.int64), tf.constant(8))) == 8
    assert min(keys_of(users)) >= 100


def test_expired_rows_are_not_among_those_that_stay_in_a_graph_of_tensorflow_1():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        users = new(2, restrict_policy=de.FrequencyRestrictPolicy, eviction=de.EvictionTTL(steps=2))
        fill = users.upsert([1, 2, 3, 4] * 9, tf.ones([36, 2]))  # used most often
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(de.embedding_lookup(users, ids))
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        step = de.DynamicEmbeddingOptimizer(optimizer).minimize(loss)
        restrict = users.restrict(2)
        keys, counts = users.export()[0], users.restrict_policy.status.lookup([10, 1])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(fill)
        for _ in range(4):
            session.run(step, {ids: [10, 11]})
        session.run(restrict)
        assert sorted(session.run(keys).tolist()) == [10, 11]
        assert session.run(counts).tolist() == [[4], [0]]


class RarestFirst(de.RestrictPolicy):
    """A user's policy that keeps its counts in another Variable."""

    def __init__(self, var):
        super().__init__(var)
        self.var = var  # as policies of tfra do
        self.counts = de.Variable(dim=1, value_dtype=tf.int64)

    def apply_update(self, ids):
        ids = tf.unique(tf.reshape(ids, [-1]))[0]
        return self.counts.upsert(ids, self.counts.lookup(ids) + 1)

    def apply_restriction(self, num_reserved, **kwargs):
        assert kwargs == {"why": "test"}
        keys, counts = self.counts.export()
        order = tf.argsort(counts[:, 0], direction="DESCENDING")
        gone = tf.gather(keys, order[num_reserved:])
        self.counts.remove(gone)
        return self.var.remove(gone)

    @property
    def status(self):
        return self.counts


def test_a_policy_of_the_users_own_hears_of_each_step():
    layer = de.layers.Embedding(2, restrict_policy=RarestFirst, devices=["/CPU:0"] * 2)
    model = Sequential([layer, layers.Dense(1)])
    model.compile(de.DynamicEmbeddingOptimizer("sgd"), "mse")
    model.fit(tf.range(8, dtype=tf.int64), tf.zeros([8, 1]), verbose=0)
    model.fit(tf.constant([2, 2, 5], tf.int64), tf.zeros([3, 1]), verbose=0)
    policy = layer.table.restrict_policy
    assert policy.status.lookup([2, 5, 6, 99]).numpy().ravel().tolist() == [2, 2, 1, 0]
    layer.table.restrict(2, why="test")
    assert keys_of(layer.table) == [2, 5]
    assert policy.var is layer.table


@keras.saving.register_keras_serializable(package="my_models", name="Oldest")
class RegisteredByTheUser(de.TimestampRestrictPolicy):
    """A user's policy that is registered with Keras."""


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (de.TimestampRestrictPolicy, "de_core>TimestampRestrictPolicy"),
        (de.FrequencyRestrictPolicy, "de_core>FrequencyRestrictPolicy"),
        (RegisteredByTheUser, "my_models>Oldest"),
        (RarestFirst, f"{__name__}.RarestFirst"),
    ],
)
def test_keras_files_keep_policies_by_fixed_names(policy, name, tmp_path):
    model = Sequential(
        [layers.Input([], dtype="int64"), de.layers.Embedding(1, restrict_policy=policy)]
    )
    file = tmp_path / "model.keras"
    model.save(file)
    with zipfile.ZipFile(file) as archive:
        config = json.loads(archive.read("config.json"))
    kept = config["config"]["layers"][-1]["config"]["restrict_policy"]
    assert kept == {"restrict_policy": name}
    loaded = keras.models.load_model(file)
    assert type(loaded.layers[-1].table.restrict_policy) is policy


class OnlyEven(de.FrequencyRestrictPolicy):
    """Counts even ids twice, in a column of the table."""

    def apply_update(self, ids):
        return super().apply_update(tf.boolean_mask(ids, ids % 2 == 0))


def test_a_policy_with_columns_gets_steps_if_it_overrides_apply_update():
    optimizer = de.DynamicEmbeddingOptimizer(SGD(1.0))
    for policy, counts in ((OnlyEven, [1, 2]), (de.FrequencyRestrictPolicy, [1, 1])):
        users = new(2, restrict_policy=policy)
        step = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 2], tf.int64))
        optimizer.apply([step], [users])
        assert users.restrict_policy.status.lookup([1, 2]).numpy().ravel().tolist() == counts


@pytest.mark.parametrize(
    ("count", "options", "error", "message"),
    [
        (-1, {}, ValueError, "num_reserved"),
        (1.5, {}, TypeError, "num_reserved"),
        (True, {}, TypeError, "num_reserved"),
        (3, {"trigger": -2}, ValueError, "trigger"),
        (tf.constant(-1), {}, ValueError, "num_reserved"),
        (3, {"trigger": tf.constant(-2)}, ValueError, "trigger"),
        (3, {"when": 1}, TypeError, "when"),
    ],
)
def test_bad_arguments_of_restrict_are_named(count, options, error, message):
    users = new(restrict_policy=de.TimestampRestrictPolicy)
    with pytest.raises(error, match=message):
        users.restrict(count, **options)


def test_a_constant_number_of_rows_can_be_fed():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        users = de.get_variable("users", dim=1, restrict_policy=de.FrequencyRestrictPolicy)
        added = users.upsert([1, 2, 3], [[0.0]] * 3)
        most = tf.constant(2)
        restricted = users.restrict(most)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(added)
        session.run(restricted, {most: 1})
        assert session.run(users.size()) == 1


def test_a_policy_without_a_restriction_says_what_to_define():
    with pytest.raises(NotImplementedError, match="must define `apply_restriction`"):
        new(restrict_policy=de.RestrictPolicy).restrict(3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: de.AdmissionCount(0), ValueError, "min_count.*min_count=0"),
        (lambda: de.AdmissionCount(1.0), TypeError, "min_count"),
        (lambda: de.AdmissionBloom(256, capacity=10), ValueError, "min_count"),
        (lambda: de.AdmissionBloom(2, capacity=0), ValueError, "capacity"),
        (lambda: de.AdmissionBloom(2, capacity=9, error=1), ValueError, "error"),
        (lambda: de.AdmissionProbability(0), ValueError, "probability"),
        (lambda: de.AdmissionProbability("x"), TypeError, "probability"),
        (lambda: de.AdmissionProbability(0.5, seed=-1), ValueError, "seed"),
        (lambda: new(restrict_policy="time"), TypeError, "subclass of de.RestrictPolicy"),
        (lambda: new(restrict_policy=de.Variable), TypeError, "subclass of de.RestrictPolicy"),
        (lambda: new(admission=2), TypeError, "`admission`"),
        (lambda: new(eviction=[1]), TypeError, "`eviction`"),
        (
            lambda: new(eviction=[LRU(max_rows=9), de.EvictionLFU(max_rows=9)]),
            ValueError,
            "bounds the table",
        ),
        (lambda: new(2, eviction=LRU(max_rows=1)), ValueError, "max_rows"),
        (LRU, ValueError, "max_rows"),
        (lambda: de.EvictionLFU(max_rows=0), ValueError, "max_rows"),
        (lambda: de.EvictionScore(max_bytes=100), ValueError, "max_bytes"),
        (de.EvictionTTL, ValueError, "steps"),
        (lambda: de.EvictionTTL(steps=0), ValueError, "steps"),
        (lambda: de.EvictionTTL(seconds=float("nan")), ValueError, "seconds"),
        (lambda: de.EvictionTTL(seconds="1"), TypeError, "seconds"),
    ],
)
def test_bad_policies_are_named(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert "Received: " in str(caught.value)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("tables", [1, 3])
def test_rows_that_expired_by_the_clock_are_not_among_those_that_stay(policy, tables):
    users = new(tables, restrict_policy=policy, eviction=de.EvictionTTL(seconds=3600))
    users.upsert([1, 2, 3, 4] * 9, tf.ones([36, 2]))  # used most often
    users.upsert([10, 11, 12, 13], tf.ones([4, 2]))
    users.upsert([11, 12, 13], tf.ones([3, 2]))
    # As if they had been written in 1970.
    long_ago = tf.zeros([4, 1], tf.int64)
    users._table.assign_slot(tf.constant([1, 2, 3, 4], tf.int64), long_ago, "de/time")
    assert users.contains([1, 2, 3, 4, 10]).numpy().tolist() == [False] * 4 + [True]
    users.restrict(6)
    assert int(users.size()) == 4
    users.restrict(3)
    assert keys_of(users) == [11, 12, 13]
