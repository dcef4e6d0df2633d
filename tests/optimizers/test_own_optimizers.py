"""A table with an optimizer of its own trains under any Keras optimizer, like a dense variable."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.optimizers.test_rules import BY_ROW, NAMES, OPTIMIZERS
from tests.support import oracle
from tests.support.applies import applies_if

IDS = np.array([3, 5, 3], np.int64)
ONES = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([3, 5], tf.int64))


QUICK = {(name, oracle.MODES[i % 2]) for i, name in enumerate(NAMES)} | {
    ("adam", "fit"),
    ("adagrad", "fit eagerly"),
    ("adam by its schedule", "fit by threes"),
    ("momentum", "train_step"),
}


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=[] if (name, mode) in QUICK else pytest.mark.slow)
        for name in NAMES
        for mode in oracle.MODES
    ],
)
def test_rows_equal_dense_variables(name, mode):
    shards = 1 + NAMES.index(name) % 2
    by_row = name in BY_ROW
    oracle.check(OPTIMIZERS[name], by_row=by_row, wrap=False, own=True, mode=mode, shards=shards)


@pytest.mark.each_choice
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_each_table_has_its_own_rule_rate_and_schedule(mode, wrap):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.5)
    makers = [
        lambda: keras.optimizers.Adagrad(0.3),
        lambda: keras.optimizers.Adam(schedule, clipnorm=0.1),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.05, weight_decay=0.1),
    ]
    model_optimizer = makers[2]()
    if wrap:
        model_optimizer = de.DynamicEmbeddingOptimizer(model_optimizer)
    own = dict(zip(oracle.TABLES, ({"optimizer": make()} for make in makers), strict=False))
    tables = oracle.Tables(model_optimizer, mode, of_table=own)
    dense = oracle.Dense(EachItsOwn([make() for make in makers]), scales=False)
    oracle.compare(tables, dense)


class EachItsOwn:
    """Trains each variable by one of several optimizers."""

    def __init__(self, optimizers):
        self.optimizers = optimizers

    def build(self, variables):
        for each, variable in zip(self.optimizers, variables, strict=True):
            each.build([variable])

    @property
    def variables(self):
        return [variable for each in self.optimizers for variable in each.variables]

    @property
    def iterations(self):
        return self.optimizers[0].iterations

    ema_overwrite_frequency = use_ema = None

    def apply_gradients(self, pairs):
        for each, (gradient, variable) in zip(self.optimizers, pairs, strict=True):
            each.apply([gradient], [variable])


def small_model(optimizer="adagrad", **settings):
    layer = de.layers.Embedding(2, initializer="ones", optimizer=optimizer, **settings)
    return keras.Sequential([keras.Input((), dtype="int64"), layer, keras.layers.Dense(1)])


def fitted(model_optimizer, table_optimizer="adagrad", epochs=2, **settings):
    model = small_model(table_optimizer)
    model.layers[-1].set_weights([np.ones([2, 1], np.float32), np.zeros(1, np.float32)])
    model.compile(model_optimizer, "mse", **settings)
    model.fit(IDS, np.zeros([3, 1], np.float32), epochs=epochs, verbose=0)
    return model.layers[0].table.lookup(IDS[:2]).numpy(), model.layers[1].kernel.numpy()


def stepped(optimizer, in_function=False):
    """Does two steps; returns the row, which moves with rate 1, and an ordinary variable."""
    table = de.Variable(dim=2, name="t", optimizer=keras.optimizers.SGD(1.0))
    dense = keras.Variable(tf.ones([2]), name="dense")
    variables = [*table.trainable_variables, dense]
    optimizer.build(variables)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup([3])) * 5.0 + tf.reduce_sum(dense * [3.0, 4.0])
            loss = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(loss, variables), variables)

    step = tf.function(step) if in_function else step
    step()
    step()
    return table.lookup([3]).numpy()[0], dense.numpy()


@pytest.mark.each_choice
@pytest.mark.parametrize("wrap", [de.DynamicEmbeddingOptimizer, lambda optimizer: optimizer])
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize(
    ("settings", "dense"),
    [
        ({"global_clipnorm": 0.5}, [0.4, 0.2]),
        ({"clipnorm": 0.5}, [0.4, 0.2]),
        ({"clipvalue": 0.5}, [0.0, 0.0]),
        ({"weight_decay": 0.5}, [-4.25, -5.75]),
        ({"use_ema": True, "ema_overwrite_frequency": 2, "ema_momentum": 0.5}, [-3.5, -5.0]),
        ({"loss_scale_factor": 64.0}, [-5.0, -7.0]),
    ],
    ids=str,
)
def test_settings_of_the_model_s_optimizer_leave_the_table_alone(
    settings, dense, in_function, wrap
):
    row, variable = stepped(wrap(keras.optimizers.SGD(1.0, **settings)), in_function)
    np.testing.assert_allclose(row, [-10.0, -10.0], rtol=1e-6)
    np.testing.assert_allclose(variable, dense, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [keras.optimizers.SGD, keras.optimizers.Adam])
@pytest.mark.parametrize("eagerly", [False, True])
def test_keras_s_accumulation_of_gradients_is_refused(make, eagerly):
    with pytest.raises(NotImplementedError, match=r"must be wrapped.*_steps=2"):
        fitted(make(gradient_accumulation_steps=2), run_eagerly=eagerly)


def test_the_own_optimizer_accumulates_gradients():
    oracle.check(lambda: OPTIMIZERS["adam"](gradient_accumulation_steps=2), own=True)


@pytest.mark.parametrize("eagerly", [False, True])
def test_keras_s_loss_scale_names_the_remedy(eagerly):
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    with pytest.raises(TypeError, match=r"Use de\.LossScaleOptimizer\(optimizer\)"):
        fitted(scaled, run_eagerly=eagerly)


@pytest.mark.each_choice
@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("wrap", [de.DynamicEmbeddingOptimizer, lambda optimizer: optimizer])
def test_a_loss_scale_of_this_library_changes_no_number(wrap, eagerly):
    wanted = fitted(keras.optimizers.Adam(0.1))
    scaled = de.LossScaleOptimizer(wrap(keras.optimizers.Adam(0.1)), initial_scale=64.0)
    oracle.assert_same(fitted(scaled, run_eagerly=eagerly), wanted)


@applies_if(hasattr(keras.optimizers, "OptimizerMap"), "a Keras with OptimizerMap")
def test_an_optimizer_per_path_in_a_multi_optimizer():
    users = de.Variable(dim=2, name="users", optimizer=keras.optimizers.SGD(1.0))
    kernel, bias = (keras.Variable(tf.ones([2]), name=name) for name in ("kernel", "bias"))
    chosen = {"kernel": keras.optimizers.SGD(0.5)}
    optimizer = keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.25), chosen)
    )
    anchor = users.trainable_variables[0]
    optimizer.apply([ONES, tf.ones([2]), tf.ones([2])], [anchor, kernel, bias])
    assert users.lookup([3, 4]).numpy().tolist() == [[-1, -1], [0, 0]]
    assert (kernel.numpy().tolist(), bias.numpy().tolist()) == ([0.5, 0.5], [0.75, 0.75])


def test_a_step_of_a_custom_loop():
    table = de.Variable(dim=2, name="t", optimizer="adam")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup(IDS))
    variables = table.trainable_variables
    keras.optimizers.SGD().apply(tape.gradient(loss, variables), variables)
    np.testing.assert_allclose(table.lookup([3]), [[-0.001, -0.001]], rtol=1e-5)
    table.optimizer.learning_rate = 0.5
    table.optimizer.step(ONES)
    assert float(table.lookup([3])[0, 0]) < -0.4
    assert int(table.optimizer.iterations) == 2
    assert [slot.name for slot in de.get_slot_variables(table.optimizer)] == ["t/m", "t/v"]


def test_a_step_of_own_tables_alone_has_no_norm_to_clip():
    table = de.Variable(dim=2, name="alone", optimizer=keras.optimizers.SGD(0.5))
    outer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.5, global_clipnorm=1.0))
    outer.apply([ONES], table.trainable_variables)
    np.testing.assert_array_equal(table.lookup([3]), [[-0.5, -0.5]])


def test_a_table_is_left_out_of_the_weight_decay_of_its_own_optimizer():
    optimizer = keras.optimizers.SGD(0.5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["free"])
    table = de.Variable(dim=2, name="free", initializer=1.0, optimizer=optimizer)
    keras.optimizers.SGD().apply([ONES], table.trainable_variables)
    np.testing.assert_array_equal(table.lookup([3]), [[0.5, 0.5]])


def test_a_step_without_a_gradient_of_the_table_is_not_counted():
    first, second = (de.Variable(dim=2, name=name, optimizer="sgd") for name in ("a", "b"))
    variables = [*first.trainable_variables, *second.trainable_variables]
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        keras.optimizers.SGD().apply([ONES, None], variables)
    assert (int(first.optimizer.iterations), int(second.optimizer.iterations)) == (1, 0)


sgd = keras.optimizers.SGD
BAD = {
    "built": (
        lambda: de.Variable(dim=2, optimizer=sgd()).optimizer.inner_optimizer,
        ValueError,
        r"must be new.*Make one optimizer per table",
    ),
    "factor": (
        lambda: sgd(loss_scale_factor=2.0),
        ValueError,
        r"no `loss_scale_factor`.*Received: loss_scale_factor=2\.0",
    ),
    "average": (lambda: sgd(use_ema=True), ValueError, r"must have an `ema_overwrite_frequency`"),
    "wrapped": (
        lambda: de.DynamicEmbeddingOptimizer(sgd()),
        TypeError,
        r"not wrapped.*keras\.optimizers\.Adagrad",
    ),
    "scaled": (lambda: keras.optimizers.LossScaleOptimizer(sgd()), TypeError, r"not wrapped"),
    "number": (lambda: 0.1, TypeError, r"Received: optimizer=0\.1"),
    "tensorflow 1": (
        tf.compat.v1.train.AdamOptimizer,
        TypeError,
        r"de\.DynamicEmbeddingOptimizer\(optimizer\)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_optimizer_that_cannot_train_one_table_is_refused(name):
    make, error, message = BAD[name]
    optimizer = make()
    with pytest.raises(error, match=message):
        de.Variable(dim=2, optimizer=optimizer)


def test_integer_rows_and_graphs_have_no_own_optimizer():
    with pytest.raises(TypeError, match=r"must hold floating-point.*or leave out `optimizer`"):
        de.Variable(dim=2, value_dtype=tf.int64, optimizer="sgd")
    with (
        tf.Graph().as_default(),
        pytest.raises(NotImplementedError, match=r"graph of TensorFlow 1.*DynamicEmbeddingOpt"),
    ):
        de.Variable(dim=2, optimizer="sgd")


def test_an_optimizer_of_tensorflow_1_refuses_such_a_table():
    table = de.Variable(dim=2, name="t", optimizer="sgd")
    optimizer = de.DynamicEmbeddingOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    with pytest.raises(TypeError, match=r"must be trained by an optimizer of Keras 3"):
        optimizer.apply_gradients([(ONES, table)])


def test_the_table_is_freed_with_its_variable():
    gc.disable()
    try:
        variable = de.Variable(dim=2, optimizer="adam")
        variable.optimizer.step(ONES)
        table = weakref.ref(variable._table)
        del variable
        assert table() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("in_function", [False, True])
def test_a_direct_step_of_a_table_s_optimizer_counts_once(in_function):
    rate = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    table = de.Variable(dim=2, name="t", optimizer=keras.optimizers.Adam(rate))
    dense, optimizer = keras.Variable(tf.zeros([1, 2]), name="d"), keras.optimizers.Adam(rate)

    def step(value):
        rows = tf.IndexedSlices(tf.fill([1, 2], value), tf.constant([3], tf.int64))
        table.optimizer.apply([rows], [table])
        table.optimizer.apply_gradients([(rows, *table.trainable_variables)])

    step = tf.function(step) if in_function else step
    for value in (1.0, -3.0, 2.0):
        step(tf.constant(value))
        for _ in range(2):
            optimizer.apply([tf.fill([1, 2], value)], [dense])
    assert int(table.optimizer.iterations) == int(optimizer.iterations) == 6
    np.testing.assert_allclose(table.lookup([3]), dense.numpy(), rtol=1e-5)


def test_a_table_s_optimizer_trains_its_table_alone():
    table = de.Variable(dim=2, name="t", optimizer="adam")
    others = [
        de.Variable(dim=2, name="own", optimizer="adam"),
        de.Variable(dim=2, name="shared"),
        keras.Variable(tf.zeros([9, 2]), name="dense"),
    ]
    for other in others:
        with pytest.raises(ValueError, match=r"of this table\. Received: .*'t'"):
            table.optimizer.apply([ONES, ONES], [table, other])
    with pytest.raises(ValueError, match="must be given one gradient"):
        table.optimizer.apply([None], [table])
    assert int(table.optimizer.iterations) == len(table) == 0
