"""Optimizers of TensorFlow 1 on tables match dense variables."""

import contextlib
import itertools

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support import oracle

v1 = tf.compat.v1.train
OPTIMIZERS = {
    "sgd": lambda: v1.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: v1.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: v1.AdagradOptimizer(0.1),
    "adagrad da": lambda: v1.AdagradDAOptimizer(
        0.1, v1.get_global_step(), l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
    "adadelta": lambda: v1.AdadeltaOptimizer(1.0, 0.9, 1e-4),
    "adam": lambda: v1.AdamOptimizer(0.01),
    "ftrl": lambda: v1.FtrlOptimizer(0.1, **oracle.FTRL),
    "ftrl by another power": lambda: v1.FtrlOptimizer(0.1, learning_rate_power=-0.7),
    "rmsprop": lambda: v1.RMSPropOptimizer(0.01),
    "rmsprop centered": lambda: v1.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
    "proximal sgd": lambda: v1.ProximalGradientDescentOptimizer(0.1, 0.01, 0.02),
    "proximal adagrad": lambda: v1.ProximalAdagradOptimizer(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
}


class Trained:
    """Trains in a session of TensorFlow 1, fed batch by batch. `clip` is a global norm, or None."""

    def __init__(self, make, lookups, open_session=tf.compat.v1.Session, clip=None):
        with tf.Graph().as_default() as graph:
            step = v1.get_or_create_global_step()
            users, items, results = lookups()
            dense = tf.compat.v1.get_variable("dense", initializer=np.ones(oracle.DIM, np.float32))
            self.batch = placeholders()
            self.loss = oracle.loss_of(users, items, dense, self.batch)
            self.optimizer = make()
            self.train = self.minimize(step, clip)
            self.of_rows = {
                name: [e for e in tf.compat.v1.global_variables() if e.name.startswith(name)]
                for name in oracle.TABLES
            }
            self.graph, self.step_count = graph, step
            self.saver = v1.Saver()
            initialize = tf.compat.v1.global_variables_initializer()
            self.session = open_session()
            if not graph.finalized:  # monitored sessions initialize and finalize by themselves
                self.session.run(initialize)
        self.results = [*results, dense]

    def minimize(self, step, clip):
        if clip is None:
            return self.optimizer.minimize(self.loss, global_step=step)
        gradients, variables = zip(*self.optimizer.compute_gradients(self.loss), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, clip)
        return self.optimizer.apply_gradients(zip(clipped, variables, strict=True), step)

    def run(self, data):
        return [self.step(batch) for batch in data]

    def step(self, batch):
        feed = dict(zip(self.batch, (each.numpy() for each in batch), strict=True))
        return self.session.run([self.loss, self.train], feed)[0]

    def finish(self):
        return self.session.run(self.results)


class Dense(Trained):
    """Undoes the dense optimizer's changes to rows without a gradient.

    With `clip`, gradients are sparse, like a table's gradients. The norm then covers all slices,
    even several slices of one row.
    """

    def __init__(self, make, clip=None):
        super().__init__(make, lambda: self.lookups(clip is not None), clip=clip)

    @staticmethod
    def lookups(sparse):
        variables = [
            tf.compat.v1.get_variable(name, initializer=rows, use_resource=True)
            for name, rows in oracle.initial_rows().items()
        ]
        users, items = (
            lambda ids, each=each: (
                tf.nn.embedding_lookup(each, ids)
                if sparse
                else tf.tensordot(tf.one_hot(ids, oracle.IDS), each, 1)
            )
            for each in variables
        )
        return users, items, variables

    def step(self, batch):
        with self.graph.as_default():
            return self.lazy_step(batch)

    def lazy_step(self, batch):
        before = self.session.run(self.of_rows)
        loss = super().step(batch)
        for name, ids in oracle.touched(batch).items():
            rest = np.setdiff1d(np.arange(oracle.IDS), ids)
            for variable, old in zip(self.of_rows[name], before[name], strict=True):
                new = self.session.run(variable)
                new[rest] = old[rest]
                variable.load(new, self.session)
        return loss


class Tables(Trained):
    """Trains the same model with tables."""

    def __init__(self, make, shards, open_session=tf.compat.v1.Session, fill=True, clip=None):
        self.shards = shards
        wrapped = lambda: de.DynamicEmbeddingOptimizer(make())  # noqa: E731
        super().__init__(wrapped, self.lookups, open_session, clip)
        if fill:
            self.session.run(self.writes)

    def lookups(self):
        self.tables = [
            de.get_variable(name, dim=oracle.DIM, devices=["/CPU:0"] * self.shards)
            for name in oracle.TABLES
        ]
        self.writes = [
            table.upsert(np.arange(oracle.IDS), rows)
            for table, rows in zip(self.tables, oracle.initial_rows().values(), strict=True)
        ]
        users, items = (
            lambda ids, table=table: de.embedding_lookup(table, ids) for table in self.tables
        )
        return users, items, [table.lookup(np.arange(oracle.IDS)) for table in self.tables]


def placeholders():
    place = tf.compat.v1.placeholder
    return (
        place(tf.int64, [oracle.BATCH, 2]),
        place(tf.int64, [oracle.BATCH]),
        place(tf.int64, [oracle.BATCH]),
        place(tf.float32, [oracle.BATCH]),
    )


@pytest.mark.each_choice
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_session_trains_tables_to_the_dense_rows(name, shards):
    tables, dense = Tables(OPTIMIZERS[name], shards), Dense(OPTIMIZERS[name])
    oracle.compare(tables, dense)
    assert tables.session.run(tables.step_count) == 5
    assert isinstance(tables.optimizer, v1.Optimizer)
    if name == "adam":
        with tables.graph.as_default():
            slots = tables.tables[0].get_slot_variables(tables.optimizer)
            values = [slot.lookup(np.arange(oracle.IDS)) for slot in slots]
        assert [slot.slot_name for slot in slots] == ["m", "v"]
        ours, theirs = tables.session.run(values), dense.session.run(dense.of_rows["users"][1:])
        oracle.assert_same(ours, theirs)


def rate():
    return 0.05


# TensorFlow's other four optimizers accept no callables as settings.
CALLABLE = {
    "sgd": lambda: v1.GradientDescentOptimizer(rate),
    "momentum": lambda: v1.MomentumOptimizer(rate, lambda: 0.8),
    "adagrad": lambda: v1.AdagradOptimizer(rate),
    "adadelta": lambda: v1.AdadeltaOptimizer(rate, lambda: 0.9, lambda: 1e-4),
    "adam": lambda: v1.AdamOptimizer(rate, lambda: 0.8, lambda: 0.99, lambda: 1e-6),
    "rmsprop": lambda: v1.RMSPropOptimizer(rate, lambda: 0.8, lambda: 0.5, lambda: 1e-7),
    "adam, a falling rate": lambda: v1.AdamOptimizer(
        lambda: v1.exponential_decay(0.05, v1.get_global_step(), 1, 0.5)
    ),
}


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("settings", "clip"),
    [
        *(pytest.param(CALLABLE[name], None, id=name) for name in CALLABLE),
        *(
            pytest.param(
                OPTIMIZERS[name],
                0.1,
                id=f"{name}, clipped",
                marks=[] if name in ("sgd", "adagrad", "adam", "ftrl") else pytest.mark.slow,
            )
            for name in OPTIMIZERS
        ),
    ],
)
def test_callable_settings_and_clipping_by_the_global_norm(settings, clip):
    oracle.compare(Tables(settings, 2, clip=clip), Dense(settings, clip=clip), 4)


NOT_IN_SESSIONS = {("sgd", "function", 2), ("adam", "eager", 3), ("ftrl", "function", 1)}


@pytest.mark.parametrize(
    ("name", "mode", "shards"),
    [
        pytest.param(*case, marks=[] if case in NOT_IN_SESSIONS else pytest.mark.slow)
        for case in itertools.product(OPTIMIZERS, ("eager", "function"), (1, 2, 3))
        if case[0] != "adagrad da"  # its global step belongs to a graph
    ],
)
def test_version_2_trains_tables_to_the_dense_rows(name, mode, shards):
    optimizer = de.DynamicEmbeddingOptimizer(OPTIMIZERS[name]())
    oracle.compare(oracle.Tables(optimizer, mode, shards, scales=False), Dense(OPTIMIZERS[name]))


@pytest.mark.parametrize("in_a_graph", [True, False])
def test_adam_counts_the_steps_without_a_gradient_of_a_table(in_a_graph):
    with tf.Graph().as_default() if in_a_graph else contextlib.nullcontext():
        table, dense = de.Variable(dim=1, name="counted"), tf.Variable([1.0], name="dense")
        optimizer = de.DynamicEmbeddingOptimizer(v1.AdamOptimizer(0.1))
        ones = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([7], tf.int64))
        both = [(ones, table.trainable_variables[0]), (tf.ones([1]), dense)]
        steps = [optimizer.apply_gradients(pairs) for pairs in (both, both[1:], both)]
        if not in_a_graph:
            assert int(optimizer.steps) == 3
            return
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for step in steps:
                session.run(step)
            assert session.run(optimizer.steps) == 3
