"""Optimizers without a rule in the engine, of every family, match dense variables."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de
from tests.optimizers.test_steps import own
from tests.optimizers.test_tf1 import Dense, Tables
from tests.support import oracle
from tests.support.applies import applies_if

v1 = tf.compat.v1.train


class BySign(v1.Optimizer):
    """A user's optimizer. Moves by the sign of a running sum from 1; the rate halves each step."""

    def __init__(self, rate):
        super().__init__(False, "BySign")
        self.rate = rate

    def _create_slots(self, var_list):
        self._create_non_slot_variable(1.0, "fading", var_list[0])
        for var in var_list:
            self._get_or_make_slot(var, tf.ones_like(var), "sum", self._name)
            self._zeros_slot(var, "last", self._name)

    @property
    def fading(self):
        eager = tf.compat.v1.executing_eagerly_outside_functions()
        with tf.init_scope():
            graph = None if eager else tf.compat.v1.get_default_graph()
        return self._get_non_slot_variable("fading", graph=graph)

    def _prepare(self):
        self.now = tf.convert_to_tensor(self.rate) * self.fading

    def _resource_apply_dense(self, grad, handle):
        total, last = self.get_slot(handle, "sum"), self.get_slot(handle, "last")
        moved = total.assign_add(grad + 0.5 * last, read_value=False)
        with tf.control_dependencies([moved]):
            kept = last.assign(grad, read_value=False)
            step = self.now * tf.sign(total.read_value())
            return tf.group(handle.assign_sub(step, read_value=False), kept)

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            return tf.group(*update_ops, self.fading.assign(self.fading * 0.5), name=name_scope)


class OfOldStyle(v1.Optimizer):
    """An optimizer like the oldest code: it supports only variables that are not resources."""

    def __init__(self):
        super().__init__(False, "OfOldStyle")

    def _apply_dense(self, grad, var):
        return tf.compat.v1.assign_sub(var, 0.1 * grad)

    _resource_apply_dense = _apply_dense


class FadingMomentum(v1.MomentumOptimizer):
    """A subclass that changes the formula's inputs, but not the formula."""

    def _prepare(self):
        super()._prepare()
        self._momentum_tensor = tf.constant(0.3)


TF1 = {
    "own": lambda: BySign(0.1),
    "old style": OfOldStyle,
    "adam": lambda: own(v1.AdamOptimizer)(0.01),
    "momentum": lambda: FadingMomentum(0.1, 0.9),
}


def slices(ids, values):
    return tf.IndexedSlices(tf.convert_to_tensor(values, tf.float32), tf.constant(ids, tf.int64))


def wrapped(make, **settings):
    with pytest.warns(UserWarning, match="has no rule inside the tables"):
        return de.DynamicEmbeddingOptimizer(make(), **settings)


@pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")
@pytest.mark.parametrize("name", TF1)
def test_a_session_trains_by_any_formula_of_tensorflow_1(name):
    tables, dense = Tables(TF1[name], shards=len(name) % 3 + 1), Dense(TF1[name])
    oracle.compare(tables, dense)
    if name == "own":
        with tables.graph.as_default():
            slots = tables.tables[0].get_slot_variables(tables.optimizer)
            values = [slot.lookup(np.arange(oracle.IDS)) for slot in slots]
            kept = {each.op.name for each in tf.compat.v1.global_variables()}
        assert [slot.slot_name for slot in slots] == ["sum", "last"]
        oracle.assert_same(
            tables.session.run(values), dense.session.run(dense.of_rows["users"][1:])
        )
        # The graph has variables for all state that is not kept per row. The temporary variables
        # of the gathered rows must not be among them, because a Saver would save them.
        slots_of_dense = {f"dense/BySign{suffix}" for suffix in ("", "_1")}
        variables = {"users/anchor", "items/anchor", "dense", "global_step", "fading"}
        assert kept == variables | slots_of_dense | {"BySign_rows/fading"}


@pytest.mark.each_choice
@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("name", ["own", "adam"])
def test_version_2_trains_by_any_formula_of_tensorflow_1(name, mode):
    tables = oracle.Tables(wrapped(TF1[name]), mode=mode, scales=False, shards=2)
    oracle.compare(tables, Dense(TF1[name]))


class NewSign(tf_keras.optimizers.Optimizer):
    """A rule with the sign of a running sum, and one decaying number for all rows."""

    def __init__(self, learning_rate=0.01, name="NewSign", **settings):
        super().__init__(name=name, jit_compile=False, **settings)
        self._learning_rate = self._build_learning_rate(learning_rate)

    def build(self, var_list):
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self.sums = [
            self.add_variable_from_reference(var, "sum", initial_value=tf.ones(var.shape))
            for var in var_list
        ]
        self._built = True

    def update_step(self, gradient, variable):
        total = self.sums[self._index_dict[self._var_key(variable)]]
        total.assign_add(gradient)
        variable.assign_sub(tf.cast(self.learning_rate, variable.dtype) * tf.sign(total))

    def get_config(self):
        return {**super().get_config(), "learning_rate": self._serialize_hyperparameter(0.01)}


class OldSign(tf_keras.optimizers.legacy.Optimizer):
    """A rule with the sign of a running sum."""

    def __init__(self, learning_rate=0.01, name="OldSign", **settings):
        super().__init__(name, **settings)
        self._set_hyper("learning_rate", learning_rate)

    def _create_slots(self, var_list):
        for var in var_list:
            self.add_slot(var, "sum", initializer="ones")

    def _resource_apply_dense(self, grad, handle):
        total = self.get_slot(handle, "sum")
        with tf.control_dependencies([total.assign_add(grad)]):
            rate = self._decayed_lr(handle.dtype.base_dtype)
            return handle.assign_sub(rate * tf.sign(total.read_value()))

    def get_config(self):
        rate = self._serialize_hyperparameter("learning_rate")
        return {**super().get_config(), "learning_rate": rate}


def halving():
    return tf_keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)


TF_KERAS = [
    lambda: NewSign(0.01),
    lambda: NewSign(halving(), clipnorm=0.1),
    lambda: NewSign(0.1, weight_decay=0.1),
    lambda: own(tf_keras.optimizers.Adam)(
        0.01, jit_compile=False, use_ema=True, ema_overwrite_frequency=2
    ),
    lambda: OldSign(0.01),
    lambda: OldSign(halving(), global_clipnorm=0.1),
    lambda: OldSign(0.1, decay=0.5),
    lambda: own(tf_keras.optimizers.legacy.Adam)(0.01, amsgrad=True),
]


@pytest.mark.each_choice
@pytest.mark.parametrize("number", range(len(TF_KERAS)))
def test_any_formula_of_tf_keras_trains_to_the_dense_rows(number):
    make = TF_KERAS[number]
    mode = ("eager", "function")[number % 2]
    tables = oracle.Tables(wrapped(make), mode=mode, shards=number % 3 + 1, scales=False)
    oracle.compare(tables, oracle.Dense(make(), scales=False))
    [slot, *_] = tables.tables["users"].get_slot_variables(tables.optimizer)
    assert slot.dim == oracle.DIM


def test_a_legacy_nadam_on_one_table_matches_one_dense_variable():
    """Uses one table, because a legacy Nadam shares state between all variables."""
    table, dense = de.Variable(dim=2, initializer=1.0, name="t"), tf.Variable(tf.ones([3, 2]))
    make = own(tf_keras.optimizers.legacy.Nadam)
    optimizer, peer = wrapped(make), make()
    other = tf.Variable([1.0])
    for step in range(1, 4):
        gradient = tf.constant([[step, 1.0], [2.0, step], [0.5, 0.1]], tf.float32)
        pairs = [(slices([0, 1, 2], gradient), *table.trainable_variables), (tf.ones([1]), other)]
        optimizer.apply_gradients(pairs)
        peer.apply_gradients([(gradient, dense)])
    np.testing.assert_allclose(table.lookup([0, 1, 2]), dense, rtol=1e-6)
    np.testing.assert_allclose(
        [each for each in optimizer.weights if "momentum_cache" in each.name],
        [each for each in peer.weights if "momentum_cache" in each.name][:1] * 2,
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adafactor(0.1),
        lambda: tf_keras.optimizers.Adafactor(0.1, jit_compile=False),
    ],
    ids=["Keras 3", "tf_keras"],
)
def test_the_factors_of_adafactor_lie_in_the_rows(make):
    optimizer, table = wrapped(make), de.Variable(dim=2, name="t")
    gradient = slices([1, 2], [[1.0, 2.0], [2.0, 3.0]])
    for _ in range(3):
        optimizer.apply_gradients([(gradient, *table.trainable_variables)])
    assert (table.lookup([1, 2]).numpy() < 0).all()
    assert int(optimizer.iterations) == 3
    assert [slot.dim for slot in table.get_slot_variables(optimizer)] == [1, 2]


def test_a_setting_that_changes_later_applies():
    make = own(tf_keras.optimizers.legacy.SGD)
    optimizer, table = wrapped(lambda: make(1.0)), de.Variable(dim=1, name="t")
    gradient = slices([7], [[1.0]])
    for rate in (1.0, 0.25):
        optimizer.learning_rate = rate
        optimizer.apply_gradients([(gradient, *table.trainable_variables)])
    assert table.lookup([7]).numpy().tolist() == [[-1.25]]


class Clipped(keras.optimizers.SGD):
    """A user's optimizer whose `get_config` lacks its settings."""

    def __init__(self, limit=0.1, factor=1.0, **settings):
        super().__init__(**settings)
        self.limit, self._factor = limit, factor

    def update_step(self, gradient, variable, learning_rate):
        gradient = keras.ops.clip(gradient, -self.limit, self.limit)
        super().update_step(gradient * self._factor, variable, learning_rate)


def test_settings_that_get_config_lacks_apply_to_tables_too():
    table, dense = de.Variable(dim=1, name="t"), keras.Variable([[0.0]])
    optimizer = wrapped(lambda: Clipped(limit=5.0, factor=2.0, learning_rate=1.0))
    for limit in (5.0, 2.0):
        optimizer.inner_optimizer.limit = limit
        optimizer.apply([slices([7], [[3.0]]), tf.constant([[3.0]])], [table, dense])
        np.testing.assert_array_equal(table.lookup([7]), dense.numpy())
    assert dense.numpy().tolist() == [[-10.0]]


def test_a_variable_that_a_constructor_makes_counts_alike_for_tables():
    class Slowing(keras.optimizers.SGD):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.steps = self.add_variable((), name="steps")

        def update_step(self, gradient, variable, learning_rate):
            self.steps.assign_add(1.0)
            variable.assign_sub(learning_rate / self.steps * gradient)

    table, dense = de.Variable(dim=1, name="t"), keras.Variable([[0.0]])
    optimizer = wrapped(lambda: Slowing(learning_rate=1.0))
    for _ in range(3):
        optimizer.apply([slices([7], [[3.0]]), tf.constant([[3.0]])], [table, dense])
    np.testing.assert_array_equal(table.lookup([7]), dense.numpy())


def test_a_constructor_that_get_config_does_not_fit_is_named():
    class Required(Clipped):
        def __init__(self, limit, **settings):
            super().__init__(limit, **settings)

    optimizer = wrapped(lambda: Required(5.0))
    with pytest.raises(TypeError, match=r"must define `get_config`.*Received: optimizer=.*'limit'"):
        optimizer.apply([slices([7], [[3.0]])], [de.Variable(dim=1)])


@pytest.mark.parametrize(
    "base",
    [v1.Optimizer, tf_keras.optimizers.legacy.Optimizer],
    ids=["TensorFlow 1", "legacy"],
)
def test_an_optimizer_without_any_formula_is_named(base):
    class Unknown(base):
        def get_config(self):
            return {}

    unknown = Unknown(False, "unknown") if base is v1.Optimizer else Unknown("unknown")
    with pytest.raises(NotImplementedError, match=r"define `_resource_apply_dense`.*Unknown"):
        de.DynamicEmbeddingOptimizer(unknown)


def test_slots_that_do_not_begin_as_one_number_are_named():
    class Uneven(OldSign):
        def _create_slots(self, var_list):
            for var in var_list:
                self.add_slot(var, "sum", initializer="uniform")

    optimizer, table = wrapped(Uneven), de.Variable(dim=2, name="t")
    gradient = slices([7], [[1.0, 1.0]])
    with pytest.raises(ValueError, match="must begin as one number everywhere"):
        optimizer.apply_gradients([(gradient, *table.trainable_variables)])
    assert int(table.size()) == 0


def test_steps_of_several_threads_in_one_session_add_up():
    make = own(v1.GradientDescentOptimizer)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = de.get_variable("t", dim=1)
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        loss = tf.reduce_sum(de.embedding_lookup(table, ids))
        train = de.DynamicEmbeddingOptimizer(make(1.0), bp_v2=True).minimize(loss)
        rows = table.lookup(np.arange(40))
        session.run(tf.compat.v1.global_variables_initializer())

        def work(first):
            for step in range(50):
                session.run(train, {ids: np.arange(first, first + 10 + step % 5)})

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, (0, 5, 10)))
        expected = np.zeros(40)
        for first in (0, 5, 10):
            for step in range(50):
                expected[first : first + 10 + step % 5] -= 1
        np.testing.assert_array_equal(session.run(rows)[:, 0], expected)


@applies_if(hasattr(keras.optimizers, "Muon"), "a Keras with Muon")
def test_muon_takes_tables_for_the_embeddings_that_it_leaves_to_adamw():
    start = np.random.default_rng(3).normal(size=[6, 3]).astype(np.float32)
    rates = np.random.default_rng(4).normal(size=[3, 6, 3]).astype(np.float32)
    dense = keras.Variable(start, name="embeddings")
    peer = keras.optimizers.Muon(0.1)
    table = de.Variable(dim=3, name="t")
    ids = tf.range(6, dtype=tf.int64)
    table.upsert(ids, start)
    with pytest.warns(UserWarning, match="Muon has no rule inside"):
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Muon(0.1))
    for rate in rates:
        peer.apply([tf.constant(rate)], [dense])
        optimizer.apply([tf.IndexedSlices(tf.constant(rate), ids)], [table])
    np.testing.assert_allclose(table.lookup(ids), dense.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")
@pytest.mark.parametrize("traced", [False, True])
def test_a_step_without_rows_leaves_the_state_that_rows_share(traced):
    table = de.Variable(dim=2, admission=de.AdmissionCount(2))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adafactor(0.1))
    gradient = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 2], tf.int64))

    def step():
        optimizer.apply([gradient], table.trainable_variables)

    step = tf.function(step) if traced else step
    step()  # refuses both ids
    step()
    assert (table.lookup([1, 2]).numpy() < 0).all()  # not NaN
