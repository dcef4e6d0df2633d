"""Tests optimizers of tables in Keras models: loss scales, mixed precision, saving, resuming."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de


@pytest.fixture
def set_policy():
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


def small_model(value_dtype=tf.float32):
    table = de.Variable(dim=4, name="users", initializer=0.1, value_dtype=value_dtype)
    inputs = keras.Input((), dtype="int64")
    rows = keras.layers.Lambda(lambda x: tf.cast(x, keras.config.dtype_policy().compute_dtype))(
        table(inputs)
    )
    return table, keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(rows))


IDS = np.arange(64, dtype=np.int64) % 16
LABELS = (IDS % 3).astype(np.float32)[:, None]


def scaled_inside(optimizer, **settings):
    return de.DynamicEmbeddingOptimizer(keras.optimizers.LossScaleOptimizer(optimizer, **settings))


def scaled_around(optimizer, **settings):
    return de.LossScaleOptimizer(de.DynamicEmbeddingOptimizer(optimizer), **settings)


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("policy", "given"),
    [
        ("mixed_float16", "inside"),
        ("mixed_float16", "by the policy"),
        ("float32", "around"),
        ("float32", "inside"),
    ],
)
@pytest.mark.parametrize("value_dtype", [tf.float32, tf.bfloat16])
def test_a_dynamic_loss_scale_fits_and_is_saved(policy, given, value_dtype, set_policy):
    set_policy(policy)
    table, model = small_model(value_dtype)
    adam = keras.optimizers.Adam(0.1)
    make = {"around": scaled_around, "inside": scaled_inside}.get(given)
    optimizer = make(adam, dynamic_growth_steps=3) if make else de.DynamicEmbeddingOptimizer(adam)
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer
    losses = model.fit(IDS, LABELS, batch_size=16, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 4
    assert int(table.size()) == 16
    grown = 2.0 ** (32 // 3) if make else 1.0
    assert float(optimizer.dynamic_scale) <= 2.0**15 * grown
    config = json.dumps(keras.optimizers.serialize(optimizer))
    copy = keras.optimizers.deserialize(json.loads(config))
    assert json.dumps(keras.optimizers.serialize(copy)) == config


def test_a_loss_scale_hands_on_what_only_the_wrapped_optimizer_can_do():
    tables = [
        de.Variable(dim=1, name=name, initializer=1.0) for name in ("first", "second", "third")
    ]
    optimizer = de.LossScaleOptimizer(
        de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1, weight_decay=0.5))
    )
    optimizer.exclude_from_weight_decay(tables[:1], var_names=["second"])
    zeros = tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([7], tf.int64))
    optimizer.apply([zeros] * 3, tables)
    rows = [float(table.lookup([7])[0, 0]) for table in tables]
    assert rows == pytest.approx([1.0, 1.0, 0.95])
    assert int(optimizer.rejected_steps) == 0


@pytest.mark.parametrize("scaled", [scaled_inside, scaled_around, de.LossScaleOptimizer])
def test_a_step_with_a_nonfinite_gradient_is_skipped(scaled):
    own = keras.optimizers.SGD(1.0) if scaled is de.LossScaleOptimizer else None
    table, dense = de.Variable(dim=2, name="t", optimizer=own), tf.Variable([1.0])
    variables = [*table.trainable_variables, dense]
    optimizer = scaled(keras.optimizers.SGD(1.0), initial_scale=4.0)
    ids = tf.constant([1], tf.int64)

    @tf.function
    def step(gradient):
        optimizer.apply([tf.IndexedSlices(gradient[None], ids), tf.ones([1])], variables)

    optimizer.build(variables)
    step(tf.constant([4.0, 8.0]))
    step(tf.constant([1.0, np.inf]))
    step(tf.constant([2.0, 2.0]))
    np.testing.assert_array_equal(table.lookup([1]), [[-2.0, -3.0]])
    np.testing.assert_array_equal(dense, [0.25])
    assert float(optimizer.dynamic_scale) == 2.0
    assert int(optimizer.iterations) == int((table.optimizer or optimizer).iterations) == 2


def test_a_loss_scale_of_keras_is_refused():
    with pytest.raises(TypeError, match=r"must be a de\.LossScaleOptimizer.*Received: a keras"):
        keras.optimizers.LossScaleOptimizer(de.DynamicEmbeddingOptimizer("sgd"))
    _, model = small_model()
    model.dtype_policy = keras.DTypePolicy("mixed_float16")
    with pytest.raises(TypeError, match=r"Use de\.LossScaleOptimizer"):
        model.compile(de.DynamicEmbeddingOptimizer("sgd"), "mse")


def test_a_loss_scale_takes_one_optimizer_that_does_not_scale():
    for given in ("sgd", keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())):
        with pytest.raises(TypeError, match=r"does not scale the loss.*Received: .*Pass an optim"):
            de.LossScaleOptimizer(given)


def test_a_loss_scale_around_an_optimizer_that_was_not_wrapped_names_the_remedies():
    _, model = small_model()
    model.compile(de.LossScaleOptimizer(keras.optimizers.SGD()), "mse")
    with pytest.raises(RuntimeError, match=r"an optimizer of its own.*de\.DynamicEmbeddingOpt"):
        model.fit(IDS, LABELS, verbose=0)


def test_a_model_with_a_loss_scale_is_loaded_by_a_fixed_name(run_python, tmp_path):
    model = keras.Sequential([de.layers.Embedding(2), keras.layers.Dense(1)])
    model.compile(scaled_around(keras.optimizers.Adam(0.1), initial_scale=8.0), "mse")
    model.fit(IDS, LABELS, batch_size=16, verbose=0)
    model.save(tmp_path / "model.keras")
    config = keras.saving.serialize_keras_object(model.optimizer)
    assert config["registered_name"] == "de_core>LossScaleOptimizer"
    program = (
        "import sys\nimport keras\nimport de_core\n"
        "optimizer = keras.models.load_model(sys.argv[1]).optimizer\n"
        "print(float(optimizer.dynamic_scale), int(optimizer.iterations))\n"
    )
    assert run_python(program, tmp_path / "model.keras").split()[-2:] == ["8.0", "4"]


def test_gradients_that_wait_are_saved_with_the_model(tmp_path):
    def make():
        table, model = small_model()
        sgd = keras.optimizers.SGD(0.1, gradient_accumulation_steps=4, global_clipnorm=1.0)
        model.compile(de.DynamicEmbeddingOptimizer(sgd), "mse")
        return table, model

    table, model = make()
    model.optimizer.build(model.trainable_variables)
    start = model.get_weights()
    model.fit(IDS, LABELS, batch_size=16, shuffle=False, verbose=0)
    expected = table.lookup(np.arange(16)).numpy()
    _, first = make()
    first.set_weights(start)
    first.optimizer.build(first.trainable_variables)
    first.fit(IDS[:32], LABELS[:32], batch_size=16, shuffle=False, verbose=0)
    first.save_weights(tmp_path / "half.weights.h5")
    resumed, second = make()
    second.optimizer.build(second.trainable_variables)
    second.load_weights(tmp_path / "half.weights.h5")
    second.fit(IDS[32:], LABELS[32:], batch_size=16, shuffle=False, verbose=0)
    np.testing.assert_allclose(resumed.lookup(np.arange(16)), expected, rtol=1e-5, atol=1e-6)


HEIGHT, DIM, STEPS, BATCH = 12, 4, 6, 16
EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.02, epsilon=1e-3),
}


def rows_at_first():
    return np.random.default_rng(5).normal(scale=0.5, size=(HEIGHT, DIM)).astype(np.float32)


def batches():
    """Returns ids and labels. Every id occurs in every step, some of them several times."""
    rng = np.random.default_rng(6)
    some = rng.integers(0, HEIGHT, size=(STEPS, BATCH - HEIGHT))
    ids = np.concatenate([np.tile(np.arange(HEIGHT), (STEPS, 1)), some], 1)
    return ids, rng.normal(size=(STEPS, BATCH, 1)).astype(np.float32)


class DenseEmbedding(keras.layers.Layer):
    """A dense layer with float32 rows, which it returns in the dtype of the policy."""

    def build(self, _):
        """Makes the rows."""
        at_first = keras.initializers.Constant(rows_at_first())
        self.rows = self.add_weight(shape=(HEIGHT, DIM), initializer=at_first, autocast=False)

    def call(self, ids):
        """Returns the rows of ids, which Keras passes as floats."""
        # The rows need a dense gradient: Keras would square a sparse one slice by slice.
        rows = tf.tensordot(tf.one_hot(tf.cast(ids, tf.int64), HEIGHT), self.rows, 1)
        return tf.cast(rows, self.compute_dtype)


def fitted(layer, optimizer, run_eagerly):
    model = keras.Sequential([layer, keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    ids, labels = batches()
    if isinstance(layer, de.layers.Embedding):
        layer.build([None])
        layer.table.upsert(np.arange(HEIGHT), rows_at_first())
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    model.fit(ids.reshape(-1), labels.reshape(-1, 1), **fit)
    return [model.layers[1].kernel.numpy(), model.layers[1].bias.numpy()]


@pytest.mark.each_choice
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(("name", "own"), [("momentum", False), ("adam", False), ("adam", True)])
@pytest.mark.parametrize("dtype", EPSILON)
def test_fit_under_a_mixed_policy_equals_dense_variables(dtype, name, own, run_eagerly, set_policy):
    set_policy(f"mixed_{dtype}")
    table = de.layers.Embedding(DIM, optimizer=OPTIMIZERS[name]() if own else None)
    optimizer = OPTIMIZERS[name]()
    if own and dtype == "float16":
        optimizer = de.LossScaleOptimizer(optimizer)
    elif not own:
        optimizer = de.DynamicEmbeddingOptimizer(optimizer)
    ours = fitted(table, optimizer, run_eagerly)
    dense = DenseEmbedding()
    theirs = fitted(dense, OPTIMIZERS[name](), run_eagerly)
    assert table(tf.constant([1], tf.int64)).dtype == dtype
    rows = table.table.lookup(np.arange(HEIGHT))
    assert rows.dtype == tf.float32
    moved = np.abs(dense.rows.numpy() - rows_at_first()).max()
    for mine, wanted in zip([rows, *ours], [dense.rows.numpy(), *theirs], strict=True):
        np.testing.assert_allclose(mine, wanted, atol=4 * EPSILON[dtype] * moved)


def test_a_loss_scale_replaces_the_scale_of_the_policy(set_policy):
    set_policy("mixed_float16")
    wrapped = de.DynamicEmbeddingOptimizer(OPTIMIZERS["adam"]())
    scaled = de.LossScaleOptimizer(wrapped, initial_scale=8.0)
    assert scaled.inner_optimizer is wrapped.inner_optimizer
    assert scaled.initial_scale == 8.0
    ours = fitted(de.layers.Embedding(DIM), scaled, False)
    by_policy = de.DynamicEmbeddingOptimizer(OPTIMIZERS["adam"]())
    theirs = fitted(de.layers.Embedding(DIM), by_policy, False)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=EPSILON["float16"])
    with pytest.raises(TypeError, match=r"Pass an optimizer such as de\.DynamicEmbeddingOptimizer"):
        de.LossScaleOptimizer(scaled)
