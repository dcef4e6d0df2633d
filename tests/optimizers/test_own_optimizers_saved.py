"""Training by a table's own optimizer goes on after a restart as if it had not stopped."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

IDS = np.arange(32, dtype=np.int64) % 8
LABELS = (IDS % 3).astype(np.float32)[:, None]


def new_model(optimizer="by a schedule"):
    if optimizer == "by a schedule":
        rate = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
        optimizer = keras.optimizers.Nadam(rate)
    layer = de.layers.Embedding(2, initializer="ones", optimizer=optimizer, name="users")
    head = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((), dtype="int64"), layer, head])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model


def fit(model):
    model.fit(IDS, LABELS, batch_size=8, shuffle=False, verbose=0)
    return model


def results(model):
    table = model.layers[0].table
    own = table.optimizer
    return [table.lookup(range(8)).numpy(), model.layers[1].kernel.numpy(), int(own.iterations)]


@pytest.fixture(scope="module")
def goals():
    return results(fit(fit(new_model())))


def by_a_checkpoint_of_tensorflow(first, folder):
    path = tf.train.Checkpoint(model=first, optimizer=first.optimizer).write(f"{folder}/saved")
    second = new_model()
    checkpoint = tf.train.Checkpoint(model=second, optimizer=second.optimizer)
    second.optimizer.build(second.trainable_variables)
    checkpoint.read(path).assert_consumed()
    return second


def by_a_manager(first, folder):
    de.checkpoint.Manager(first, folder).save()
    second = new_model()
    second.optimizer.build(second.trainable_variables)
    de.checkpoint.Manager(second, folder).restore()
    return second


def by_a_file_of_keras(first, folder):
    first.save(f"{folder}/model.keras")
    return keras.models.load_model(f"{folder}/model.keras")


def by_a_file_of_weights(first, folder):
    first.save_weights(f"{folder}/model.weights.h5")
    second = new_model()
    second.optimizer.build(second.trainable_variables)
    second.load_weights(f"{folder}/model.weights.h5")
    return second


def by_a_deep_copy(first, _):
    return copy.deepcopy(first)


WAYS = [
    by_a_checkpoint_of_tensorflow,
    by_a_manager,
    by_a_file_of_keras,
    by_a_file_of_weights,
    by_a_deep_copy,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_changes_no_number(way, tmp_path, goals):
    first = fit(new_model())
    second = way(first, tmp_path)
    for mine, wanted in zip(results(second), results(first), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    fit(second)
    for mine, wanted in zip(results(second), goals, strict=True):
        np.testing.assert_array_equal(mine, wanted)
    [momentum, velocity] = de.get_slot_variables(second.layers[0].table.optimizer)
    assert (momentum.slot_name, velocity.slot_name) == ("m", "v")
    assert np.all(velocity.lookup(range(8)) > 0)


def test_a_checkpoint_without_the_optimizer_restores_the_rows(tmp_path):
    first = new_model(None)
    first.layers[0].table.upsert([7], [[5.0, 6.0]])
    path = tf.train.Checkpoint(model=first).write(str(tmp_path / "saved"))
    second = fit(new_model())
    tf.train.Checkpoint(model=second).read(path).expect_partial()
    assert second.layers[0].table.lookup([7]).numpy().tolist() == [[5.0, 6.0]]
    assert int(second.layers[0].table.size()) == 1
    fit(second)


def test_a_copy_of_a_model_has_a_new_optimizer():
    first = fit(new_model())
    table = keras.models.clone_model(first).layers[0].table
    assert int(table.optimizer.iterations) == 0
    assert type(table.optimizer.inner_optimizer) is keras.optimizers.Nadam
    configs = [each.layers[0].get_config()["optimizer"] for each in (first, new_model("adam"))]
    assert [each["class_name"] for each in configs] == ["Nadam", "Adam"]
    assert "optimizer" not in new_model(None).layers[0].get_config()


def test_a_weight_s_value_keeps_the_steps():
    """`set_weights` restores rows and slots, as with a wrapped optimizer."""
    model = fit(new_model())
    before = model.get_weights()
    rows = results(model)[0]
    fit(model)
    model.set_weights(before)
    np.testing.assert_array_equal(results(model)[0], rows)
    assert int(model.layers[0].table.optimizer.iterations) == 8


@pytest.mark.parametrize("export", [de.export, tf.saved_model.save])
def test_an_export_has_no_optimizer(export, tmp_path):
    model = fit(new_model())
    export(model, str(tmp_path / "model"))
    [folder] = (tmp_path / "model").rglob("variables")
    names = [name for name, _ in tf.train.list_variables(str(folder / "variables"))]
    assert not any("optimizer" in name for name in names if not name.startswith("optimizer/"))
    loaded = tf.saved_model.load(str(folder.parent))
    [answer] = loaded.signatures["serving_default"](tf.constant(IDS[:4])).values()
    np.testing.assert_allclose(answer, model.predict(IDS[:4], verbose=0), rtol=1e-6)


def new_table(make, shards=1):
    return de.Variable(dim=2, name="t", optimizer=make(), devices=["/CPU:0"] * shards)


def stepped(table, steps):
    for number in range(steps):
        gradient = tf.IndexedSlices(
            tf.fill([2, 2], 1.0 + number % 3), tf.constant([1, 2], tf.int64)
        )
        table.optimizer.step(gradient)
    return table


def nadam_by_a_schedule():
    return keras.optimizers.Nadam(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5))


def by_restore(first, second, folder):
    de.checkpoint.save(first, folder)
    de.checkpoint.restore(second, folder)


def by_restore_of_a_manager_s_delta(first, second, folder):
    manager = de.checkpoint.Manager(first, folder)
    manager.save()
    stepped(first, 1)
    manager.save()
    de.checkpoint.restore(second, manager.latest_checkpoint)


def by_a_warm_start(first, second, folder):
    de.checkpoint.save(first, folder)
    de.warm_start(folder, [second], slots=True)


@pytest.mark.filterwarnings("ignore:.*has no rule inside")
@pytest.mark.parametrize("way", [by_restore, by_restore_of_a_manager_s_delta, by_a_warm_start])
@pytest.mark.parametrize(
    "make", [keras.optimizers.Adam, nadam_by_a_schedule, keras.optimizers.Adafactor]
)
def test_the_count_and_the_rate_are_restored_with_the_slots(make, way, tmp_path):
    first = stepped(new_table(make, shards=2), 5)
    if make is keras.optimizers.Adam:
        first.optimizer.learning_rate = 0.25
    second = new_table(make, shards=3)
    way(first, second, tmp_path)
    assert int(second.optimizer.iterations) == int(first.optimizer.iterations) > 4
    assert float(second.optimizer.learning_rate) == float(first.optimizer.learning_rate)
    both = [stepped(each, 2).lookup([1, 2]).numpy() for each in (first, second)]
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize(
    ("saved_by", "options"),
    [
        (keras.optimizers.Adam, {"slots": False}),
        (keras.optimizers.Adam, {"merge": True}),
        (keras.optimizers.Adagrad, {}),
        (lambda: None, {}),
    ],
)
def test_without_slots_of_its_class_an_optimizer_keeps_its_count(saved_by, options, tmp_path):
    first, second = new_table(saved_by), stepped(new_table(keras.optimizers.Adam), 2)
    first.upsert([1], [[1.0, 2.0]])
    if first.optimizer is not None:
        stepped(first, 3)
    de.checkpoint.save(first, tmp_path)
    de.checkpoint.restore(second, tmp_path, **options)
    np.testing.assert_array_equal(second.lookup([1]), first.lookup([1]))
    assert int(second.optimizer.iterations) == 2


def test_each_save_of_a_process_has_its_own_count(tmp_path):
    table, count = new_table(keras.optimizers.Adam), 0
    manager = de.checkpoint.Manager(table, tmp_path / "managed")

    def restored(path):
        other = new_table(keras.optimizers.Adam)
        de.checkpoint.restore(other, path)
        return int(other.optimizer.iterations)

    for steps in (3, 4, 5):
        stepped(table, steps)
        count += steps
        de.checkpoint.save(table, tmp_path / str(count))
        table.save_to_file_system(str(tmp_path / "files"))
        other = new_table(keras.optimizers.Adam)
        other.load_from_file_system(str(tmp_path / "files"))
        manager.save()
        assert int(other.optimizer.iterations) == count
        assert [restored(tmp_path / str(count)), restored(manager.latest_checkpoint)] == [count] * 2


def test_a_function_saves_a_table_without_its_optimizer_s_count(tmp_path):
    first, second = stepped(new_table(keras.optimizers.Adam), 2), new_table(keras.optimizers.Adam)

    @tf.function(autograph=False)
    def save():
        first.save_to_file_system(str(tmp_path))

    save()
    second.load_from_file_system(str(tmp_path))
    np.testing.assert_array_equal(second.lookup([1]), first.lookup([1]))
    assert int(second.optimizer.iterations) == 0
