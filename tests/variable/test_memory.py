"""A table's memory is freed with the last reference to its Variable."""

import gc
import threading

import keras
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library
from tests.support.mapped_memory import mapped_bytes

ROWS, DIM = 100_000, 128
PAYLOAD = ROWS * DIM * 4


def by_name():
    return de.get_variable("measured", dim=DIM)


def alone():
    return de.Variable(dim=DIM, devices=["/CPU:0"] * 2)


def in_a_module():
    holder = tf.Module()
    holder.table = alone()
    return holder.table


def in_a_function():
    table = alone()

    @tf.function
    def look(ids):
        return table.lookup(ids)

    look(tf.constant([1], tf.int64))
    return table


@pytest.fixture
def in_a_new_process(forks):
    """Calls a function of this module where no other test has left memory."""

    def call(function, *arguments):
        done = forks.call(function, *arguments)
        assert done.returncode == 0, done.stderr

    return call


def drop_the_last_reference(name):
    make = globals()[name]
    keys, rows = tf.range(ROWS, dtype=tf.int64), tf.ones([ROWS, DIM])
    make().upsert(keys, rows)  # create everything that is created once per process
    gc.collect()
    before = mapped_bytes()
    table = make()
    table.upsert(keys, rows)
    assert table.memory_usage()["rows"] >= PAYLOAD
    held = mapped_bytes() - before
    gc.collect()
    gc.disable()
    del table
    if make is in_a_function:
        gc.collect()  # TensorFlow's functions are in reference cycles
    kept = mapped_bytes() - before
    assert held > 0.9 * PAYLOAD, held
    assert kept < 0.2 * PAYLOAD, kept


@pytest.mark.parametrize("name", ["by_name", "alone", "in_a_module", "in_a_function"])
def test_the_last_reference_frees_it(in_a_new_process, name):
    in_a_new_process(drop_the_last_reference, name)


def drop_fitted_models(eagerly):
    ids = tf.range(ROWS, dtype=tf.int64)

    def fit():
        model = keras.Sequential([de.layers.Embedding(DIM), keras.layers.Dense(1)])
        optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))
        model.compile(optimizer, "mse", run_eagerly=eagerly)
        model.fit(ids[:8], tf.zeros([8, 1]), verbose=0)
        table = model.layers[0].table
        table.upsert(ids, tf.ones([ROWS, DIM]))
        return mapped_bytes(), table.memory_usage()["slots"]

    fit()
    gc.collect()
    first = mapped_bytes()
    for _ in range(3):
        before = mapped_bytes()
        held, slots = fit()
        assert slots >= 2 * PAYLOAD  # Adam keeps two slots, each as large as the rows
        assert held - before > 2 * PAYLOAD
        gc.collect()
    assert mapped_bytes() - first < 0.5 * PAYLOAD


@pytest.mark.parametrize("eagerly", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_that_was_fitted_takes_its_table_with_it(in_a_new_process, eagerly):
    in_a_new_process(drop_fitted_models, eagerly)


def made_and_traced():
    table = de.Variable(dim=2, name="gone", initializer=1.0)

    @tf.function
    def look(ids):
        return table.lookup(ids)

    return table, look, look.get_concrete_function(tf.TensorSpec([None], tf.int64))


def test_a_function_that_outlives_its_variable_says_so():
    ids = tf.constant([1], tf.int64)
    table, look, traced = made_and_traced()
    handle = table.resource_handle
    del table
    gc.collect()
    assert traced(ids).numpy().tolist() == [[1.0, 1.0]]  # `look` keeps the Variable alive
    del look
    gc.collect()
    for use in (lambda: traced(ids), lambda: library.de_table_clear(handle)):
        with pytest.raises(tf.errors.FailedPreconditionError) as caught:
            use()
        assert "keep a reference" in str(caught.value)
        assert "'gone_mht_1of1', whose Variable was deleted" in str(caught.value)


def test_a_variable_may_go_anywhere():
    tables = [de.Variable(dim=1, name=f"doomed_{number}") for number in range(3)]
    handles = [table.resource_handle for table in tables]
    with tf.Graph().as_default():
        del tables[0]

    @tf.function
    def traced():
        del tables[0]
        return 1

    traced()
    thread = threading.Thread(target=tables.clear)
    thread.start()
    thread.join()
    gc.collect()
    for handle in handles:
        with pytest.raises(tf.errors.FailedPreconditionError, match="was deleted"):
            library.de_table_size(handle)


def test_names_share_only_through_get_variable():
    named = [de.Variable(dim=1, name="one") for _ in range(2)] + [de.get_variable("one", dim=1)]
    layers = [de.layers.Embedding(1) for _ in range(2)]
    layers += [de.layers.Embedding(1, name="one") for _ in range(2)]
    for layer in layers:
        layer(tf.constant([[1]], tf.int64))
    tables = named + [layer.table for layer in layers]
    for number, table in enumerate(tables):
        table.upsert([number], [[1.0]])
    assert [int(table.size()) for table in tables] == [1] * 7
    assert [table.export()[0].numpy().tolist() for table in tables] == [[i] for i in range(7)]
