"""Tests behaviour that the optimizers of all families share."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de
from tests.optimizers.test_steps import new_table, slices
from tests.support import execution_modes

v1 = tf.compat.v1.train
FAMILIES = {
    "keras": keras.optimizers,
    "tf_keras": tf_keras.optimizers,
    "legacy": tf_keras.optimizers.legacy,
    "tensorflow 1": v1,
}


def wrapped_of(family, name="Adam", rate=0.1, **settings):
    if family == "tensorflow 1":
        name = f"{'GradientDescent' if name == 'SGD' else name}Optimizer"
    return de.DynamicEmbeddingOptimizer(getattr(FAMILIES[family], name)(rate), **settings)


@pytest.fixture(params=FAMILIES)
def wrapped(request):
    return functools.partial(wrapped_of, request.param)


def test_a_table_that_is_not_trainable_is_skipped(wrapped):
    fixed, other = new_table("fixed", trainable=False), new_table("other")
    wrapped().apply_gradients([(slices([1], [1.0]), fixed), (slices([1], [1.0]), other)])
    assert (int(fixed.size()), int(other.size())) == (0, 1)
    with pytest.raises(ValueError, match="At least one variable must have a gradient"):
        wrapped().apply_gradients([(slices([1], [1.0]), fixed)])


WAYS_TO_NAME = {
    "a Variable": lambda table, _: [table],
    "anchors": lambda table, _: table.trainable_variables,
    "a wrapper": lambda _, wrapper: [wrapper],
}


@pytest.mark.parametrize("way", WAYS_TO_NAME)
@pytest.mark.parametrize(
    ("family", "mode"),
    [(name, "eager") for name in FAMILIES if name != "keras"] + [("tensorflow 1", "graph")],
)
def test_minimize_takes_tables_by_each_name(family, mode, way):
    ids = np.array([1, 1, 2])
    with execution_modes.entered(mode) as run:
        table, fixed, dense = new_table(), new_table("fixed", trainable=False), tf.Variable([2.0])
        _, wrapper = de.embedding_lookup(table, ids, return_trainable=True)
        _, of_fixed = de.embedding_lookup(fixed, ids, return_trainable=True)
        optimizer = wrapped_of(family, "SGD")
        if mode == "graph":
            run.initialize()

        def loss():
            return tf.reduce_sum(table.lookup(ids) * dense) + tf.reduce_sum(fixed.lookup(ids))

        variables = [*WAYS_TO_NAME[way](table, wrapper), fixed, of_fixed, dense]
        given = loss() if mode == "graph" else loss
        run.run(lambda: optimizer.minimize(given, var_list=variables))
        rows = run.run(lambda: table.lookup([1, 2, 3]))
        np.testing.assert_allclose(rows, [[-0.4, -0.4], [-0.2, -0.2], [0.0, 0.0]])
        assert run.run(fixed.size) == 0
    if family != "tensorflow 1":
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.minimize(value, variables, tape=tape)
        optimizer.minimize(loss, var_list=lambda: variables)
        assert int(optimizer.iterations) == 3
        assert dense.numpy() > 2.0  # negative rows, from the second step on, make `dense` grow
        assert int(fixed.size()) == 0


@pytest.mark.parametrize("way", WAYS_TO_NAME)
@pytest.mark.parametrize("family", ["tf_keras", "tensorflow 1"])
def test_computed_gradients_come_with_the_anchor(family, way):
    table, dense = new_table(), tf.Variable([2.0])
    _, wrapper = de.embedding_lookup(table, [1], return_trainable=True)
    named = [*WAYS_TO_NAME[way](table, wrapper), dense]

    def loss():
        return tf.reduce_sum(table.lookup([1]) * dense)

    optimizer = wrapped_of(family)
    (gradient, anchor), (_, other) = optimizer.compute_gradients(loss, named)
    assert anchor is table.trainable_variables[0].value
    assert other is dense
    assert gradient.indices.numpy().tolist() == [1]


def test_the_learning_rate_changes_between_steps(wrapped):
    rate = tf.Variable(0.5)
    optimizer = wrapped("Adagrad")
    if isinstance(optimizer, v1.Optimizer):  # its learning rate is a constant
        optimizer = de.DynamicEmbeddingOptimizer(v1.AdagradOptimizer(lambda: rate))
    table = new_table(initializer=1.0)

    @tf.function
    def step():
        optimizer.apply_gradients([(slices([1], [1.0]), table)])

    moved, before = [], 1.0
    for each in (0.5, 0.25, 0.0):
        rate.assign(each)
        if hasattr(optimizer, "learning_rate"):
            optimizer.learning_rate = each
        step()
        row = float(table.lookup([1])[0, 0])
        moved.append(before - row)
        before = row
    expected = [0.5 / 1.1**0.5, 0.25 / 2.1**0.5, 0.0]
    np.testing.assert_allclose(moved, expected, rtol=1e-5)


@pytest.mark.parametrize(("shards", "most"), [(1, 25), (3, 60)])
def test_a_table_costs_a_step_of_each_family_few_operations(wrapped, shards, most):
    def operations(count):
        tables = [new_table(f"t{i}", devices=["/CPU:0"] * shards) for i in range(count)]
        dense = tf.Variable([1.0, 1.0])
        variables = [*(t.trainable_variables[0] for t in tables), dense]
        optimizer = wrapped()
        if hasattr(optimizer, "build"):
            optimizer.build(variables)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def step(ids):
            with tf.GradientTape() as tape:
                loss = sum(tf.reduce_sum(t.lookup(ids) * dense) for t in tables)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        made = step.get_concrete_function().graph.get_operations()
        types = [each.type for each in made]
        assert types.count("DeEmbeddingAnchor") == count
        assert types.count("DeTableFind") == count * shards
        assert types.count("DeTablesApply") == (1 if shards == 1 else count * shards)
        return len(made)

    two, four, eight = map(operations, (2, 4, 8))
    assert eight - four == 2 * (four - two)
    assert (four - two) / 2 <= most


def test_a_step_on_integers_alone_names_them(wrapped):
    counts = new_table("counts of clicks", value_dtype=tf.int32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(counts.lookup([1]), tf.float32))
    variables = [*counts.trainable_variables, tf.Variable([1.0])]
    gradients = tape.gradient(loss, variables)
    with pytest.raises(ValueError, match=r"value_dtype=tf\.float32.*'counts of clicks'"):
        wrapped().apply_gradients(zip(gradients, variables, strict=True))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"value_dtype": tf.int32}, TypeError, "must hold floating-point"),
        ({"key_dtype": tf.string}, TypeError, "must be of its key dtype"),
        ({"dim": 3}, ValueError, r"shape \[ids, dim\]"),
    ],
)
def test_rejected_input_leaves_the_table_unchanged(wrapped, arguments, error, message):
    table, other, dense = new_table(**arguments), new_table("other"), tf.Variable([1.0])
    gradients = [slices([1], [1.0]), slices([1], [1.0]), tf.ones([1])]
    with pytest.raises(error, match=message):
        wrapped().apply_gradients(zip(gradients, [other, table, dense], strict=True))
    assert int(other.size()) == int(table.size()) == 0
    assert dense.numpy() == [1.0]


@pytest.mark.parametrize("in_function", [False, True])
def test_a_refused_gradient_changes_nothing_and_is_counted(wrapped, in_function):
    first, second, dense = new_table("first"), new_table("second"), tf.Variable([1.0, 1.0])
    optimizer = wrapped(reject_nonfinite=True)

    def step(bad):
        bad_slices = tf.IndexedSlices(bad * tf.ones([1, 2]), tf.constant([2], tf.int64))
        gradients = [slices([1], [1.0]), bad_slices, tf.ones([2])]
        optimizer.apply_gradients(zip(gradients, [first, second, dense], strict=True))

    step(tf.constant(1.0))
    run = tf.function(step) if in_function else step
    before = [first.export()[1].numpy(), second.export()[1].numpy(), dense.numpy()]
    for bad in (np.nan, np.inf):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
            run(tf.constant(bad, tf.float32))
    after = [first.export()[1].numpy(), second.export()[1].numpy(), dense.numpy()]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert int(optimizer.rejected_steps) == 2
    assert int(getattr(optimizer, "iterations", 1)) == 1


def test_a_session_counts_the_steps_that_it_refuses():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("t", dim=1)
        scale = tf.compat.v1.placeholder(tf.float32, [])
        loss = scale * tf.reduce_sum(de.embedding_lookup(table, np.array([3])))
        optimizer = de.DynamicEmbeddingOptimizer(v1.AdamOptimizer(), reject_nonfinite=True)
        train, size = optimizer.minimize(loss), table.size()
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
                session.run(train, {scale: np.nan})
        assert session.run([optimizer.rejected_steps, size]) == [2, 0]
        session.run(train, {scale: 1.0})
        assert session.run([optimizer.rejected_steps, size]) == [2, 1]


def test_another_optimizer_has_slots_of_its_own_and_keeps_the_values(wrapped):
    table = new_table(initializer=1.0)
    first, second, third = wrapped(), wrapped(), wrapped("Adagrad")
    gradient = slices([1, 2], [1.0, 2.0])
    for optimizer in (first, first, second):
        optimizer.apply_gradients([(gradient, table)])
    slots = [
        {slot.slot_name: slot.lookup([1]).numpy()[0, 0] for slot in table.get_slot_variables(each)}
        for each in (first, second)
    ]
    assert [sorted(each) for each in slots] == [["m", "v"]] * 2
    np.testing.assert_allclose([slots[0]["m"], slots[1]["m"]], [0.19, 0.1], rtol=1e-5)
    before = table.lookup([1, 2, 3]).numpy()
    third.apply_gradients([(slices([1], [0.0]), table)])
    np.testing.assert_array_equal(table.lookup([1, 2, 3]), before)
    assert len(table.slot_owners()) == 3


def test_a_method_that_gradients_of_tables_pass_by_is_named():
    class Clipping(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            super().apply([each * 0.5 for each in grads], trainable_variables)

    class ClippingToo(v1.AdamOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            return super().apply_gradients(grads_and_vars, global_step, name)

    for optimizer in (Clipping(), ClippingToo()):
        with pytest.warns(UserWarning, match="has its own apply.* does not do to those of tables"):
            de.DynamicEmbeddingOptimizer(optimizer)


def test_gradient_transformers_are_refused():
    given = tf_keras.optimizers.legacy.SGD(gradient_transformers=[lambda pairs: pairs])
    with pytest.raises(NotImplementedError, match="must have no `gradient_transformers`"):
        de.DynamicEmbeddingOptimizer(given)


@pytest.mark.parametrize("family", ["keras", "tf_keras"])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_tables_are_left_out_of_the_weight_decay(family, is_wrapped):
    names = ("a", "b", "c_free") if not is_wrapped else ("same", "same", "c_free")
    decayed, kept, named = (new_table(name, initializer=1.0) for name in names)
    inner = FAMILIES[family].SGD(0.5, weight_decay=0.5)
    if not is_wrapped:
        inner.exclude_from_weight_decay([tf.Variable(1.0)])
        with pytest.raises(ValueError, match=r"exclude variables .*only after it is wrapped"):
            de.DynamicEmbeddingOptimizer(inner)
        inner.exclude_from_weight_decay(var_names=["b", "free"])
    optimizer = de.DynamicEmbeddingOptimizer(inner)
    if is_wrapped:
        optimizer.exclude_from_weight_decay([decayed], ["same"])
        optimizer.exclude_from_weight_decay([kept], ["free"])  # replaces the first call
    pairs = [(slices([1], [1.0]), table) for table in (decayed, kept, named)]
    optimizer.apply_gradients(pairs)
    rows = [float(table.lookup([1])[0, 0]) for table in (decayed, kept, named)]
    assert rows == [0.25, 0.5, 0.5]


def test_a_learning_rate_of_tensorflow_1_may_be_fed():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("t", dim=1)
        fed = tf.compat.v1.placeholder_with_default(1.0, [])
        loss = tf.reduce_sum(de.embedding_lookup(table, np.array([3])))
        optimizer = de.DynamicEmbeddingOptimizer(v1.GradientDescentOptimizer(fed))
        train, rows = optimizer.minimize(loss), table.lookup([3])
        session.run(tf.compat.v1.global_variables_initializer())
        for value in (1.0, 0.25):
            session.run(train, {fed: value})
        assert session.run(rows).tolist() == [[-1.25]]


@pytest.mark.parametrize("kind", [keras.optimizers, tf_keras.optimizers])
def test_a_step_outside_of_strategy_run_says_what_to_call(kind):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        table, kernel = new_table("users"), tf.Variable([[1.0], [1.0]])
        optimizer = de.DynamicEmbeddingOptimizer(kind.SGD(1.0))
        variables = [*table.trainable_variables, kernel]
        optimizer.build(variables)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(de.embedding_lookup(table, [1, 2]), kernel))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    message = "must run inside of `strategy.run`. Received: a step outside of it, under OneD"
    for run in (step, tf.function(step)):
        with strategy.scope(), pytest.raises(RuntimeError, match=message):
            run()
    assert int(table.size()) == 0  # nothing was changed
    strategy.run(step)
    assert int(table.size()) == 2


def trained_in_a_graph(optimizer):
    """Returns a dense variable and rows after one step. They start at 1; gradients are 2 and 1."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dense = tf.Variable(tf.ones([2]))
        table = de.get_variable("users", dim=2, initializer=1.0)
        loss = tf.reduce_sum(dense**2) + tf.reduce_sum(table.lookup(tf.constant([1, 2], tf.int64)))
        variables = [dense, *table.trainable_variables]
        pairs = list(zip(tf.gradients(loss, variables), variables, strict=True))
        step, rows = optimizer.apply_gradients(pairs), table.lookup(tf.constant([1], tf.int64))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(step)
        return session.run([dense, rows])


@pytest.mark.parametrize("make", [v1.GradientDescentOptimizer, tf_keras.optimizers.legacy.SGD])
def test_optimizers_of_tensorflow_1_and_legacy_ones_make_their_variables_in_the_graph(make):
    dense, rows = trained_in_a_graph(de.DynamicEmbeddingOptimizer(make(0.25)))
    np.testing.assert_array_equal(dense, [0.5, 0.5])
    np.testing.assert_array_equal(rows, [[0.75, 0.75]])


@pytest.mark.parametrize("of", [keras.optimizers, tf_keras.optimizers])
def test_new_optimizers_are_refused_with_the_remedy(of):
    optimizer = de.DynamicEmbeddingOptimizer(of.SGD(0.25))
    with pytest.raises(RuntimeError, match=r"made in the graph.*Received: SGD with variables of"):
        trained_in_a_graph(optimizer)


def test_a_legacy_optimizer_that_was_used_eagerly_is_refused():
    table, used = de.Variable(dim=2), de.DynamicEmbeddingOptimizer(tf_keras.optimizers.legacy.SGD())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([1]))
    [anchor] = table.trainable_variables
    used.apply_gradients([(tape.gradient(loss, anchor), anchor)])
    with pytest.raises(RuntimeError, match="made in the graph"):
        trained_in_a_graph(used)


@pytest.mark.each_choice
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize(
    ("family", "scaled"), [*((name, False) for name in FAMILIES), ("keras", True)]
)
def test_the_anchor_and_wrappers_are_one_variable(family, scaled, in_function):
    """A step applies a table's gradient once, even if a list of variables repeats the table."""
    table, optimizer = de.Variable(dim=1, name="t"), wrapped_of(family, "SGD", 1.0)
    if scaled:
        optimizer = de.LossScaleOptimizer(optimizer, initial_scale=1.0)

    def step():
        with tf.GradientTape() as tape:
            first, wrapper = de.embedding_lookup(table, [3], return_trainable=True)
            second, other = de.embedding_lookup(table, [3, 5], return_trainable=True)
            loss = tf.reduce_sum(first) + tf.reduce_sum(second)
        variables = [*table.trainable_variables, wrapper, other]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    (tf.function(step) if in_function else step)()
    np.testing.assert_array_equal(table.lookup([3, 5]), [[-2.0], [-1.0]])


def test_gradients_that_differ_are_refused():
    table, optimizer = de.Variable(dim=1, name="t"), wrapped_of("keras", "SGD", 1.0)
    with tf.GradientTape(persistent=True) as tape:
        rows, wrapper = de.embedding_lookup(table, [3], return_trainable=True)
        losses = tf.reduce_sum(rows), tf.reduce_sum(rows**2)
    anchor = table.trainable_variables[0]
    pairs = [
        (tape.gradient(losses[0], anchor), anchor),
        (tape.gradient(losses[1], wrapper), wrapper),
    ]
    with pytest.raises(ValueError, match=r"one gradient in a step\. Received: two .* table 't'"):
        optimizer.apply_gradients(pairs)
    assert int(table.size()) == 0


def test_positions_in_distinct_ids_are_not_taken_for_distinct_ids():
    table = de.Variable(dim=1, name="t")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0, clipvalue=2.0))

    @tf.function
    def step(values):
        _, positions = tf.unique(values, out_idx=tf.int64)
        with tf.GradientTape() as tape:
            loss = 1.5 * tf.reduce_sum(table.lookup(positions))
        gradients = tape.gradient(loss, table.trainable_variables)
        optimizer.apply(gradients, table.trainable_variables)

    step(tf.constant([5, 5, 6], tf.int64))
    np.testing.assert_array_equal(table.lookup([0, 1]), [[-2.0], [-1.5]])


class TwoTables(keras.Model):
    def __init__(self):
        super().__init__()
        self.users = de.layers.Embedding(2, name="users", initializer=1.0)
        self.items = de.layers.Embedding(2, name="items", initializer=1.0)

    def call(self, ids):
        return tf.reduce_sum(self.users(ids) + self.items(ids), -1, keepdims=True)


IDS, LABELS = np.array([1, 2], np.int64), np.zeros([2, 1], np.float32)


def test_paths_carry_the_names_of_the_tables():
    model = TwoTables()
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    model.fit(IDS, LABELS, verbose=0)
    assert [each.path for each in model.trainable_variables] == ["users/anchor", "items/anchor"]
    tree = model.get_state_tree("numpy_array")
    assert set(tree["trainable_variables"]) == {"users", "items"}
    model.set_state_tree(tree)


def test_tables_under_optimizers_of_their_own():
    model = TwoTables()
    still = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.0))
    moving = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1))
    optimizers = keras.optimizers.OptimizerMap(still, {"users/.*": moving})
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse")
    model.fit(IDS, LABELS, verbose=0)
    np.testing.assert_array_equal(model.items.table.lookup(IDS), np.ones([2, 2]))
    assert np.all(model.users.table.lookup(IDS) != 1)
    with pytest.raises(TypeError, match=r"Wrap each optimizer of a MultiOptimizer: keras"):
        de.DynamicEmbeddingOptimizer(keras.optimizers.MultiOptimizer(optimizers))


@pytest.mark.parametrize("shards", [1, 2])
def test_ids_of_unknown_rank_train(shards):
    table = de.Variable(dim=2, name="t", initializer=1.0, devices=["/CPU:0"] * shards)
    optimizer = wrapped_of("keras", "SGD", 1.0)
    anchor = table.trainable_variables[0]

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def step(ids):
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(table, ids) + de.embedding_lookup_unique(table, ids)
            loss = tf.reduce_sum(rows)
        optimizer.apply_gradients([(tape.gradient(loss, anchor), anchor)])
        return rows

    assert step([[3, 5]]).shape == [1, 2, 2]
    np.testing.assert_array_equal(table.lookup([3, 5, 7]), [[-1, -1], [-1, -1], [1, 1]])


@pytest.mark.parametrize("shards", [1, 2])
def test_ids_of_a_placeholder_of_unknown_rank_train(shards):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("t", dim=2, devices=["/CPU:0"] * shards)
        ids = tf.compat.v1.placeholder(tf.int64)
        rows = de.embedding_lookup_many([table], [ids])[0]
        train = wrapped_of("tensorflow 1", "SGD", 1.0).minimize(tf.reduce_sum(rows))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train, {ids: [[3], [3]]})
        assert session.run(rows, {ids: [3, 4]}).tolist() == [[-2, -2], [0, 0]]
