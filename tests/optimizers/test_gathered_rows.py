"""Tests the slots and the threads of optimizers that run on gathered rows."""

import contextlib
import copy
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de
from tests.optimizers.test_steps import own

pytestmark = pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")


class TwoSlots(keras.optimizers.Optimizer):
    """A rule with two slots of given names. Each sums the gradient at its own rate."""

    def __init__(self, names, learning_rate=1.0, **settings):
        super().__init__(learning_rate, **settings)
        self.slot_names = tuple(names)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.sums = [
            [self.add_variable_from_reference(each, name=name) for each in variables]
            for name in self.slot_names
        ]

    def update_step(self, gradient, variable, learning_rate):
        first, second = (each[self._get_variable_index(variable)] for each in self.sums)
        self.assign_add(first, gradient)
        self.assign_add(second, 10 * gradient)
        self.assign_sub(variable, learning_rate * (first + second))

    def get_config(self):
        return {**super().get_config(), "names": list(self.slot_names)}


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (["m_1", "m"], ["m_1", "m"]),
        (["m", "m"], ["m", "m_1"]),
        (["m_1", "m_1"], ["m_1", "m_1_1"]),
        (["vhat", "v"], ["vhat", "v"]),
        (["a/b", "a_b"], ["a_b", "a_b_1"]),
        (["average", "m"], ["average_1", "m"]),
    ],
)
@pytest.mark.parametrize("use_ema", [False, True])
def test_every_slot_has_a_name_of_its_own(names, stored, use_ema):
    table, dense = de.Variable(dim=2, name="t"), tf.Variable(tf.zeros([1, 2]))
    settings = {"use_ema": use_ema, "ema_momentum": 0.5}
    optimizer = de.DynamicEmbeddingOptimizer(TwoSlots(names, **settings))
    peer = TwoSlots([name.replace("/", "_") for name in names], **settings)
    for _ in range(3):
        gradient = tf.ones([1, 2])
        optimizer.apply([tf.IndexedSlices(gradient, tf.constant([7], tf.int64))], [table])
        peer.apply([gradient], [dense])
    np.testing.assert_array_equal(table.lookup([7]), dense)
    slots = [slot.slot_name for slot in table.get_slot_variables(optimizer)]
    assert [name for name in slots if name != "average"] == stored


class OldTwoSlots(tf.compat.v1.train.Optimizer):
    """The same rule for TensorFlow 1."""

    def __init__(self, names):
        super().__init__(False, "OldTwoSlots")
        self.names = names

    def _create_slots(self, var_list):
        for var in var_list:
            for name in self.names:
                self._zeros_slot(var, name, self._name)

    def _resource_apply_dense(self, grad, handle):
        first, second = (self.get_slot(handle, name) for name in self.names)
        first.assign_add(grad)
        second.assign_add(10 * grad)
        return handle.assign_sub(first + second)


@pytest.mark.parametrize("names", [["vhat", "v"], ["a/b", "a_b"], ["average", "average_1"]])
def test_slots_of_tensorflow_1_are_found_by_their_names(names):
    table, optimizer = de.Variable(dim=1, name="t"), OldTwoSlots(names)
    optimizer = de.DynamicEmbeddingOptimizer(optimizer)
    gradient = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([7], tf.int64))
    for _ in range(3):
        optimizer.apply_gradients([(gradient, *table.trainable_variables)])
    np.testing.assert_array_equal(table.lookup([7]), [[-66.0]])


def uses_after_three_steps(make, mode, policies):
    table = de.get_variable(
        f"t_{make.__name__}",
        dim=1,
        devices=["/CPU:0"] * 2,
        restrict_policy=de.FrequencyRestrictPolicy,
        **policies,
    )
    optimizer = de.DynamicEmbeddingOptimizer(make(1.0))

    def step():
        gradient = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([7, 8], tf.int64))
        return optimizer.apply_gradients([(gradient, *table.trainable_variables)])

    if mode == "graph":
        train, uses = step(), table.restrict_policy.status.lookup([7, 8])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(3):
                session.run(train)
            return session.run(uses).ravel().tolist()
    step()
    run = tf.function(step) if mode == "function" else step
    for _ in range(2):
        run()
    return table.restrict_policy.status.lookup([7, 8]).numpy().ravel().tolist()


@pytest.mark.parametrize("mode", ["eager", "function", "graph"])
@pytest.mark.parametrize(
    ("policies", "uses"),
    [
        ({}, 3),
        ({"admission": de.AdmissionCount(1)}, 3),
        ({"admission": de.AdmissionCount(2)}, 2),
        ({"eviction": [de.EvictionTTL(steps=9), de.EvictionLFU(max_rows=9)]}, 3),
        ({"eviction": de.EvictionLFU(max_rows=9, count_lookups=True)}, 3),
        (
            {
                "admission": de.AdmissionCount(2),
                "eviction": de.EvictionLFU(max_rows=9, count_lookups=True),
            },
            2,
        ),
    ],
)
def test_a_step_counts_as_one_use_of_a_row_with_and_without_a_rule(mode, policies, uses):
    sgd = tf.compat.v1.train.GradientDescentOptimizer if mode == "graph" else keras.optimizers.SGD
    for make in (sgd, own(sgd)):
        with tf.Graph().as_default() if mode == "graph" else contextlib.nullcontext():
            assert uses_after_three_steps(make, mode, policies) == [uses, uses]


def test_a_deep_copy_of_an_old_optimizer_trains():
    table = de.Variable(dim=2, name="t", initializer="zeros")
    optimizer = de.DynamicEmbeddingOptimizer(own(tf_keras.optimizers.legacy.SGD)(0.5))
    optimizer = copy.deepcopy(optimizer)
    ids = tf.constant([7], tf.int64)
    optimizer.apply_gradients([(tf.IndexedSlices(tf.ones([1, 2]), ids), table)])
    np.testing.assert_array_equal(table.lookup(ids), [[-0.5, -0.5]])


def test_eager_steps_of_several_threads_are_those_of_one():
    make = own(keras.optimizers.Adagrad)
    table = de.Variable(dim=2, name="t", initializer="zeros")
    counts, steps = (1, 4, 9), 60
    optimizer = de.DynamicEmbeddingOptimizer(make(0.1), bp_v2=True)
    barrier, errors = threading.Barrier(len(counts)), []

    def ids_of(count):
        return tf.range(100 * count, 101 * count, dtype=tf.int64)

    def work(count):
        try:
            barrier.wait(120)
            for step in range(steps):
                values = tf.fill([count, 2], 1.0 + step)
                optimizer.apply([tf.IndexedSlices(values, ids_of(count))], [table])
        except Exception as error:
            errors.append(error)

    optimizer.build([table])
    threads = [threading.Thread(target=work, args=[count]) for count in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert errors == []
    for count in counts:
        peer, dense = make(0.1), tf.Variable(tf.zeros([count, 2]))
        for step in range(steps):
            peer.apply([tf.fill([count, 2], 1.0 + step)], [dense])
        np.testing.assert_allclose(table.lookup(ids_of(count)), dense, rtol=1e-5)
