"""Models in .keras files of an earlier library version load, predict and train as before."""

import shutil
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

# Keras converts its variables through an `__array__` that numpy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
#: Saved in November 2026, before the library's modules moved into packages.
FILE = Path(__file__).parent / "data/earlier_version.keras"
INPUTS = [
    tf.constant([1, 2, 3, 1], tf.int64),
    tf.constant([[1, 2, 3]] * 4, tf.int64),
    tf.constant([["a", "b"], ["c", ""], ["a", "c"], ["d", "d"]]),
]
LABELS = tf.constant([[1.0], [2.0], [3.0], [4.0]])
#: Predictions of the saved model, and of the model after one more step.
PREDICTED = [2.2730081, 2.0323834, 2.3433025, 2.3486602]
PREDICTED_AFTER_A_STEP = [3.2251840, 2.9951873, 3.4931250, 3.5432963]
#: Saved with a MultiOptimizer: two tables trained by Adam, a dense layer by Adagrad, three steps.
MULTI_OPTIMIZER_FILE = FILE.with_name("earlier_multi_optimizer.keras")
IDS = tf.constant([[1, 2], [2, 3], [3, 4], [1, 4]], tf.int64)


@keras.saving.register_keras_serializable("earlier")
def field_of(ids):
    return ids % 2


def copy_with_other_config(file, target, old, new):
    """Copies a .keras file, and replaces a part of the model's config."""
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                assert old in content
                content = content.replace(old, new)
            copy.writestr(name, content)


def test_a_file_of_an_earlier_version_still_loads_and_trains_on(tmp_path):
    model = keras.models.load_model(shutil.copy(FILE, tmp_path))
    predicted = model.predict(INPUTS, verbose=0).ravel()
    np.testing.assert_allclose(predicted, PREDICTED, rtol=1e-5, atol=1e-6)
    users, tags = model.get_layer("users").table, model.get_layer("tag_rows").table
    assert users.size() == 3
    assert isinstance(users.restrict_policy, de.TimestampRestrictPolicy)
    assert tags.admission == de.AdmissionCount(1)
    assert tags.eviction == (de.EvictionLRU(100), de.EvictionTTL(1000))
    model.fit(INPUTS, LABELS, epochs=1, verbose=0)
    predicted = model.predict(INPUTS, verbose=0).ravel()
    np.testing.assert_allclose(predicted, PREDICTED_AFTER_A_STEP, rtol=1e-4, atol=1e-5)


def test_classes_are_found_by_their_registered_names_whatever_their_modules(tmp_path):
    moved = tmp_path / "moved.keras"
    copy_with_other_config(FILE, moved, b'"module": "de_core', b'"module": "de_core.gone')
    model = keras.models.load_model(moved)
    predicted = model.predict(INPUTS, verbose=0).ravel()
    np.testing.assert_allclose(predicted, PREDICTED, rtol=1e-5, atol=1e-6)


def check_goes_on(model, tmp_path):
    """Checks that the model of `MULTI_OPTIMIZER_FILE` has its whole state."""
    adam, adagrad = model.optimizer.optimizers
    steps = [each.iterations for each in (model.optimizer, adam, adagrad)]
    assert [int(each) for each in steps] == [3, 3, 3]
    predicted = model.predict(IDS, verbose=0).ravel()
    np.testing.assert_allclose(predicted, [4.4301977, 4.4301977, 4.4534254, 4.4534254], rtol=1e-5)
    model.fit(IDS, LABELS, epochs=1, verbose=0)
    predicted = model.predict(IDS, verbose=0).ravel()
    np.testing.assert_allclose(predicted, [3.733747, 3.7337463, 3.7868688, 3.7868688], rtol=1e-5)
    model.save(tmp_path / "today.keras")
    again = keras.models.load_model(tmp_path / "today.keras")
    saved, loaded = ([each.numpy() for each in m.optimizer.variables] for m in (model, again))
    tf.nest.map_structure(np.testing.assert_array_equal, loaded, saved)


def test_a_multi_optimizer_of_an_earlier_version_goes_on_where_it_was(tmp_path):
    by_todays_path = tmp_path / "by_path.keras"
    copy_with_other_config(MULTI_OPTIMIZER_FILE, by_todays_path, b'"anchor": {', b'".*anchor": {')
    check_goes_on(keras.models.load_model(by_todays_path), tmp_path)


def test_a_map_by_the_earlier_path_of_tables_is_refused_with_a_remedy_that_works(tmp_path):
    file = shutil.copy(MULTI_OPTIMIZER_FILE, tmp_path)
    with pytest.raises(ValueError, match=r"keys=\['anchor'\] .* Load .* key '\.\*/anchor'"):
        keras.models.load_model(file)
    model = keras.models.load_model(file, compile=False)
    adam, adagrad = keras.optimizers.Adam(0.1), keras.optimizers.Adagrad(0.1)
    wrap = de.DynamicEmbeddingOptimizer
    optimizers = keras.optimizers.OptimizerMap(wrap(adagrad), {".*/anchor": wrap(adam)})
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse")
    model.optimizer.build(model.trainable_variables)
    model.load_weights(file)
    check_goes_on(model, tmp_path)


def test_layers_of_the_reference_api_from_an_earlier_version_pool_as_they_did(tmp_path):
    ids = np.array([[1, 2, 3], [3, 4, 1], [9, 9, 1]])
    predicted = [1.4431228637695312, 1.9222869873046875, 0.916124701499939]
    model = keras.models.load_model(
        shutil.copy(FILE.with_name("earlier_tfra_layers.keras"), tmp_path)
    )
    assert model.get_layer("pooled").output.shape == (None, 2)
    model.save(tmp_path / "today.keras")
    for each in (model, keras.models.load_model(tmp_path / "today.keras")):
        np.testing.assert_allclose(each.predict(ids, verbose=0).ravel(), predicted, rtol=1e-5)
        assert each.get_layer("squashed").table.init_size == 10
