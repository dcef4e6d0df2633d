"""Tests properties of a table's optimizer step that do not depend on the optimizer's formula."""

import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de
from de_core.base.ops import library
from tests.support import oracle

IDS = np.arange(64)


def slices(ids, values, dim=2):
    values = np.broadcast_to(np.asarray(values, np.float32)[..., None], [len(ids), dim])
    return tf.IndexedSlices(tf.constant(values), tf.constant(ids, tf.int64))


def new_table(name="t", dim=2, **arguments):
    return de.Variable(dim=dim, name=name, **arguments)


def adam(**settings):
    return de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1), **settings)


@pytest.mark.parametrize(
    "rule", [keras.optimizers.Adam, keras.optimizers.Lion, keras.optimizers.Ftrl]
)
@pytest.mark.parametrize("gradient", [np.nan, np.inf])
def test_by_default_a_nan_is_trained_as_a_dense_variable_would(rule, gradient):
    table, dense = new_table(), keras.Variable(np.full([1, 2], 0.5, np.float32))
    table.upsert([1], dense)
    optimizers = de.DynamicEmbeddingOptimizer(rule(0.1)), rule(0.1)
    for each in (gradient, 1.0):
        optimizers[0].apply([slices([1], [each])], [table])
        optimizers[1].apply([tf.fill([1, 2], each)], [dense])
        np.testing.assert_allclose(table.lookup([1]), dense.numpy(), rtol=1e-6)


def test_a_learning_rate_that_is_no_number_changes_nothing():
    table, dense = new_table(), tf.Variable([1.0])
    optimizer = adam()
    optimizer.learning_rate = float("nan")

    @tf.function
    def step():
        optimizer.apply([slices([1], [1.0]), tf.ones([1])], [table, dense])

    optimizer.build([table, dense])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        step()
    assert int(table.size()) == 0
    assert dense.numpy() == [1.0]
    assert int(optimizer.iterations) == 0


def test_the_wrapper_of_a_table_that_cannot_be_trained_means_the_table():
    fixed, whole = new_table("fixed", trainable=False), new_table("whole", value_dtype=tf.int32)
    other = new_table("other")
    ids, optimizer = tf.constant([1], tf.int64), adam()
    _, of_fixed = de.embedding_lookup(fixed, ids, return_trainable=True)
    optimizer.apply([slices([1], [1.0]), slices([1], [1.0])], [of_fixed, other])
    assert (int(fixed.size()), int(other.size())) == (0, 1)
    _, of_whole = de.embedding_lookup(whole, ids, return_trainable=True)
    with pytest.raises(TypeError, match="must hold floating-point"):
        optimizer.apply([slices([1], [1.0])], [of_whole])


def test_a_late_table_is_trained_or_named_in_the_error():
    first, late = new_table("first"), new_table("late")
    optimizer = adam()
    for table in (first, late):
        optimizer.apply([slices([1], [1.0])], [table])
    assert [each.name for each in de.get_slot_variables(optimizer)] == [
        "first/m",
        "first/v",
        "late/m",
        "late/v",
    ]
    accumulating = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
    optimizer = de.DynamicEmbeddingOptimizer(accumulating)
    optimizer.apply([slices([1], [1.0])], [first])
    with pytest.raises(ValueError, match="must be built with all tables"):
        optimizer.apply([slices([1], [1.0])], [late])


def test_gradients_and_variables_must_be_as_many():
    with pytest.raises(ValueError, match="2 gradients for 1 variables"):
        adam().apply([slices([1], [1.0])] * 2, [new_table()])


@pytest.mark.parametrize("wrong", [None, 3, object(), keras.layers.Dense(1)])
def test_wrapping_a_non_optimizer_raises(wrong):
    with pytest.raises(TypeError, match="`opt` must be"):
        de.DynamicEmbeddingOptimizer(wrong)
    with pytest.raises(TypeError, match="not wrapped yet"):
        de.DynamicEmbeddingOptimizer(adam())


def test_two_optimizers_keep_their_own_slots_and_one_can_be_dropped():
    table = new_table()
    first, second = adam(), de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1))
    for optimizer in (first, second, first):
        optimizer.apply([slices([1, 2], [1.0, 2.0])], [table])
    assert [each.slot_name for each in table.get_slot_variables(first)] == ["m", "v"]
    [accumulator] = table.get_slot_variables(second)
    np.testing.assert_allclose(accumulator.lookup([1, 2, 3])[:, 0], [1.1, 4.1, 0.1], rtol=1e-6)
    assert int(accumulator.size()) == 2
    keys, values = accumulator.export()
    assert dict(zip(keys.numpy(), values.numpy()[:, 0].round(1), strict=True)) == {1: 1.1, 2: 4.1}
    rows = table.lookup([1, 2]).numpy()
    with pytest.raises(
        ValueError, match=r"a name from `slot_owners\(\)`.*Received: optimizer='adam'"
    ):
        table.drop_slots("adam")
    table.drop_slots(first)
    assert table.get_slot_variables(first) == []
    assert len(table.slot_owners()) == 1
    np.testing.assert_array_equal(table.lookup([1, 2]), rows)
    np.testing.assert_allclose(accumulator.lookup([1, 2, 3])[:, 0], [1.1, 4.1, 0.1], rtol=1e-6)
    first.apply([slices([1], [1.0])], [table])  # its slots start from zero again
    assert [each.slot_name for each in de.get_slot_variables(first)] == ["m", "v"]
    with pytest.raises(tf.errors.NotFoundError, match="slot must name"):
        table._table.find_slot(tf.constant([1], tf.int64), tf.constant("nobody/m"), 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="belong to the table"):
        table._table.each(library.de_table_drop_slots, "de")


def test_more_slots_than_a_file_can_hold_are_refused(tmp_path):
    table = new_table()
    optimizers = [adam() for _ in range(33)]
    for optimizer in optimizers[:32]:
        optimizer.apply([slices([1], [1.0])], [table])
    before = table.lookup([1]).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"64 slots: drop_slots.*slots=66"):
        optimizers[32].apply([slices([1], [1.0])], [table])
    np.testing.assert_array_equal(table.lookup([1]), before)
    assert len(table.slot_owners()) == 32
    de.checkpoint.save(table, tmp_path)
    other = new_table()
    other_rule = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    other_rule.apply([slices([1, 2], [1.0, 1.0])], [other])
    with pytest.raises(tf.errors.InvalidArgumentError, match="slots=65"):
        de.checkpoint.restore(other, tmp_path)
    assert int(other.size()) == 2
    table.drop_slots(optimizers[0])
    optimizers[32].apply([slices([1], [1.0])], [table])


@pytest.mark.parametrize("key_dtype", [tf.int64, tf.string])
@pytest.mark.parametrize("value_dtype", [tf.float32, tf.float64, tf.bfloat16])
def test_slots_are_dropped_from_rows_of_any_type(key_dtype, value_dtype):
    table = de.Variable(key_dtype, value_dtype, dim=3, name="t", devices=["/CPU:0"] * 2)
    keys = (
        tf.strings.as_string(tf.range(50))
        if key_dtype == tf.string
        else tf.range(50, dtype=tf.int64)
    )
    optimizers = [
        de.DynamicEmbeddingOptimizer(make(0.1))
        for make in (keras.optimizers.Adagrad, keras.optimizers.Adam, de.optimizers.RowwiseAdagrad)
    ]
    gradient = tf.IndexedSlices(tf.ones([50, 3], value_dtype), keys)
    for optimizer in optimizers:
        optimizer.apply([gradient], [table])
    before = table.lookup(keys).numpy()
    kept = [each.lookup(keys).numpy() for each in table.get_slot_variables(optimizers[0])]
    last = [each.lookup(keys).numpy() for each in table.get_slot_variables(optimizers[2])]
    table.drop_slots(optimizers[1])
    np.testing.assert_array_equal(table.lookup(keys).numpy(), before)
    for optimizer, old in ((optimizers[0], kept), (optimizers[2], last)):
        for slot, values in zip(table.get_slot_variables(optimizer), old, strict=True):
            np.testing.assert_array_equal(slot.lookup(keys), values)


def own(base):
    """Returns a subclass that overrides the formula, so that it works on gathered rows."""
    name = "update_step" if hasattr(base, "update_step") else "_resource_apply_dense"
    formula = getattr(base, name)
    if "apply_state" in inspect.signature(formula).parameters:  # of a legacy optimizer
        changed = lambda self, grad, var, apply_state=None: formula(self, grad, var, apply_state)  # noqa: E731
    else:
        changed = lambda *a: formula(*a)  # noqa: E731
    return type(f"Own{base.__name__}", (base,), {name: changed})


GENERIC = {
    "a slot that starts at 0.1": own(keras.optimizers.Adagrad),
    "moments": own(keras.optimizers.Adam),
    "a number that all rows share": own(keras.optimizers.Nadam),
}


@pytest.mark.each_choice
@pytest.mark.parametrize(
    "settings", [{}, {"weight_decay": 0.1}, {"clipnorm": 0.1}, {"use_ema": True}]
)
@pytest.mark.parametrize("name", GENERIC)
def test_an_optimizer_without_a_rule_works_on_gathered_rows_and_says_so(name, settings):
    with pytest.warns(UserWarning, match="has no rule inside the tables"):
        tables, _ = oracle.check(lambda: GENERIC[name](0.01, **settings), shards=2)
    [slot, *_] = tables.tables["users"].get_slot_variables(tables.optimizer)
    assert slot.dim == oracle.DIM


@pytest.mark.parametrize("native", [True, False])
def test_updates_of_several_threads_add_up(native):
    table = new_table(dim=1)
    make = keras.optimizers.SGD if native else own(keras.optimizers.SGD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizers = [de.DynamicEmbeddingOptimizer(make(1.0), bp_v2=True) for _ in range(4)]
    for optimizer in optimizers:
        optimizer.apply([slices([0], [1.0], dim=1)], [table])

    def train(optimizer):
        step = tf.function(lambda: optimizer.apply([slices(IDS, np.ones(64), dim=1)], [table]))
        for _ in range(20):
            step()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(train, optimizers))
    np.testing.assert_array_equal(table.lookup(IDS)[:, 0], [-84.0] + [-80.0] * 63)


@pytest.mark.parametrize("key_dtype", [tf.int32, tf.string])
def test_other_key_dtypes_train_the_same(key_dtype):
    tables, dense = oracle.check(
        lambda: keras.optimizers.Adam(0.01), steps=4, key_dtype=key_dtype, shards=2
    )
    assert tables.tables["users"].key_dtype == key_dtype
    assert int(dense.optimizer.iterations) == 4


@pytest.mark.parametrize(
    ("make", "widths"),
    [
        (de.optimizers.RowwiseAdagrad, {"accumulator": 1}),
        (de.optimizers.RowwiseAdam, {"m": 4, "v": 1}),
    ],
)
def test_row_wise_optimizers_keep_one_number_a_row(make, widths):
    """Rows move as those of an ordinary variable. test_exact.py compares them with formulas."""
    table, dense = new_table(dim=4), tf.Variable(tf.zeros([3, 4]))
    values = np.random.default_rng(0).normal(size=[3, 4])
    ids = tf.constant([0, 1, 2], tf.int64)
    optimizer = de.DynamicEmbeddingOptimizer(make(0.1))
    for scale in (1.0, 2.0, -0.5):
        given = tf.constant(values * scale, tf.float32)
        optimizer.apply([tf.IndexedSlices(given, ids), given], [table, dense])
    np.testing.assert_allclose(table.lookup(ids), dense, rtol=2e-5)
    slots = table.get_slot_variables(optimizer)
    assert {each.slot_name: each.dim for each in slots} == widths
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert copy.get_config() == optimizer.get_config()


def test_nadam_multiplies_its_momenta_once_per_step():
    names = {"float32": "a", "float64": "b"}  # tables of two dtypes, which have different settings
    tables = [de.Variable(dim=1, name=name, value_dtype=d) for d, name in names.items()]
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Nadam(0.1))
    gradient = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([7], tf.int64))
    for _ in range(3):
        optimizer.apply([gradient] * 2, [table.trainable_variables[0] for table in tables])
    momenta = [0.9 * (1 - 0.5 * 0.96**step) for step in (1, 2, 3)]
    product = momenta[0] * momenta[1] * momenta[2]
    assert float(optimizer.u_product.value) == pytest.approx(product)


@pytest.mark.parametrize("of", [keras.optimizers, tf_keras.optimizers, tf_keras.optimizers.legacy])
def test_nadam_counts_the_steps_of_tables_alone_and_of_variables_alone(of):
    table = new_table(dim=1)
    dense, *peers = (tf.Variable([[0.0]]) for _ in range(3))
    optimizer, peer = de.DynamicEmbeddingOptimizer(of.Nadam(0.1)), of.Nadam(0.1)
    for number, trained in enumerate(["both", "table", "variable", "both"], 1):
        ours = slices([7], [number], dim=1), tf.constant([[0.5 * number]])
        theirs = tf.constant([[float(number)]]), ours[1]
        chosen = {"table": [0], "variable": [1], "both": [0, 1]}[trained]
        variables = *table.trainable_variables, dense
        optimizer.apply_gradients([(ours[each], variables[each]) for each in chosen])
        peer.apply_gradients([(theirs[each], peers[each]) for each in chosen])
    np.testing.assert_allclose(table.lookup([7]), peers[0], rtol=1e-5)
    np.testing.assert_allclose(dense, peers[1], rtol=1e-5)
