"""A restored run continues exactly like an uninterrupted one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

# Trains a model for some steps. A script, so that it can run in another process.
SCRIPT = """
import sys
import keras, numpy as np, tensorflow as tf
import de_core as de

def run(begin, end, start, target, shards):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input([2], dtype="int64"),
        de.layers.Embedding(3, initializer="normal", name="ids", devices=["/CPU:0"] * shards),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ])
    inner = {"adam": keras.optimizers.Adam(0.1), "adagrad": keras.optimizers.Adagrad(0.1),
             "momentum": keras.optimizers.SGD(0.01, momentum=0.9)}[sys.argv[2]]
    model.compile(de.DynamicEmbeddingOptimizer(inner), "mse")
    if start and sys.argv[1] == "weights":
        model.optimizer.build(model.trainable_variables)  # or Keras leaves the optimizer out
        model.load_weights(start)
    elif start:
        model = keras.models.load_model(start)
    for step in range(begin, end):
        rng = np.random.default_rng(step)
        ids = rng.integers(-20, 20, size=(16, 2)) * (step + 1)
        model.train_on_batch(ids, np.sin(ids.sum(1, keepdims=True)).astype(np.float32))
    if target and sys.argv[1] == "weights":
        model.save_weights(target)
    elif target:
        model.save(target)
    table = model.layers[0].table
    keys, rows = (each.numpy() for each in table.export())
    order = np.argsort(keys)
    kernel = model.layers[-1].get_weights()[0].tolist()
    return [int(model.optimizer.iterations), keys[order].tolist(), rows[order].tolist(),
            table.lookup([10**9, 7777]).numpy().tolist(), kernel]

path, shards, resumed_shards = sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
if sys.argv[6] == "begin":
    print(run(0, 6, None, None, shards))
    run(0, 3, None, path, shards)
else:
    print(run(3, 6, path, None, resumed_shards))
"""
SUFFIX = {"weights": ".weights.h5", "keras": ".keras"}


@pytest.mark.parametrize(
    ("kind", "inner", "shards", "resumed_shards"),
    [
        ("weights", "adagrad", 3, 2),
        ("keras", "adam", 2, 2),
        pytest.param("weights", "adam", 1, 1, marks=pytest.mark.slow),
        pytest.param("keras", "momentum", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_a_run_resumed_in_another_process_ends_with_the_same_numbers(
    run_python, tmp_path, kind, inner, shards, resumed_shards
):
    arguments = [kind, inner, tmp_path / f"saved{SUFFIX[kind]}", shards, resumed_shards]
    whole = run_python(SCRIPT, *arguments, "begin")
    resumed = run_python(SCRIPT, *arguments, "resume")
    assert resumed == whole
    assert whole.startswith("[6, ")


def small_model():
    model = keras.Sequential(
        [keras.Input([1], dtype="int64"), de.layers.Embedding(2), keras.layers.Flatten()]
    )
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "mse")
    return model


def train(model, times=1):
    ids = np.array([[1], [2]])
    for _ in range(times):
        model.train_on_batch(ids, np.ones([2, 2]))


def rows(model):
    return model.layers[0].table.lookup([1, 2]).numpy()


def test_going_back_to_a_checkpoint_in_the_same_process(tmp_path):
    model = small_model()
    train(model, 2)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "c"))
    train(model)
    expected = rows(model)
    train(model, 5)
    model.layers[0].table.upsert([99], [[1.0, 1.0]])
    tf.train.Checkpoint(model=model).restore(path).assert_consumed()
    assert int(model.layers[0].table.size()) == 2
    train(model)
    np.testing.assert_array_equal(rows(model), expected)


@pytest.mark.parametrize("how", ["weights after a step", "a checkpoint before any step"])
def test_another_model_of_the_same_process_takes_over_the_slots(tmp_path, how):
    first, second = small_model(), small_model()
    train(first, 3)
    if how == "weights after a step":
        train(second, 1)  # so that its step is traced before the weights are loaded
        first.save_weights(tmp_path / "w.weights.h5")
        second.load_weights(tmp_path / "w.weights.h5")
    else:  # before the optimizer was built
        path = tf.train.Checkpoint(model=first).write(str(tmp_path / "c"))
        tf.train.Checkpoint(model=second).restore(path)
    train(first)
    train(second)
    np.testing.assert_array_equal(rows(second), rows(first))


def test_a_variable_that_is_not_checkpointed_keeps_its_rows(tmp_path):
    module = tf.Module()
    module.table = de.Variable(dim=1, checkpoint=False)
    module.table.upsert([1], [[1.0]])
    checkpoint = tf.train.Checkpoint(module=module)
    path = checkpoint.write(str(tmp_path / "c"))
    module.table.upsert([1], [[2.0]])
    checkpoint.restore(path)
    assert float(module.table.lookup([1])[0, 0]) == 2.0


def test_keras_callbacks_save_and_restore(tmp_path, ratings, ratings_model):
    users, _, pleases = ratings

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):  # noqa: ARG002
            if epoch == 2:
                raise KeyboardInterrupt

    def fit(model, *callbacks):
        model.fit(users, pleases, epochs=4, shuffle=False, verbose=0, callbacks=list(callbacks))

    whole, broken, resumed = ratings_model(), ratings_model(), ratings_model()
    fit(whole)
    backup = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        fit(broken, keras.callbacks.BackupAndRestore(backup), Interrupt())
    best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss")
    fit(resumed, keras.callbacks.BackupAndRestore(backup), best)
    assert int(resumed.optimizer.iterations) == int(whole.optimizer.iterations)
    np.testing.assert_array_equal(
        resumed.predict(users, verbose=0), whole.predict(users, verbose=0)
    )
    loaded = keras.models.load_model(tmp_path / "best.keras")
    np.testing.assert_array_equal(loaded.predict(users, verbose=0), whole.predict(users, verbose=0))
