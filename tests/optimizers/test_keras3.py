"""Tests optimizers of tables in Keras models: loss scales, mixed precision, saving, resuming."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de


@pytest.fixture
def mixed_float16():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    yield
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
def test_a_dynamic_loss_scale_fits_and_is_saved(policy, given, value_dtype, request):
    if policy == "mixed_float16":
        request.getfixturevalue("mixed_float16")
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
