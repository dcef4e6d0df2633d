"""Models that an earlier version of the library saved as .keras files."""

import shutil
import zipfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import de_core as de

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


@keras.saving.register_keras_serializable("earlier")
def field_of(ids):
    return ids % 2


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
    with zipfile.ZipFile(FILE) as archive, zipfile.ZipFile(moved, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                assert b'"module": "de_core' in content
                content = content.replace(b'"module": "de_core', b'"module": "de_core.gone')
            copy.writestr(name, content)
    model = keras.models.load_model(moved)
    predicted = model.predict(INPUTS, verbose=0).ravel()
    np.testing.assert_allclose(predicted, PREDICTED, rtol=1e-5, atol=1e-6)
