"""TensorFlow's own restore refuses a checkpoint of tfra, and names the importer."""

from __future__ import annotations

import shutil

import keras
import pytest
import tensorflow as tf

import de_core as de
from tests.tfra_files.artefacts import DATA

REFUSED = r"must be imported.*de_core\.tfra\.import_checkpoint"
LEGACY = """
import sys, pytest, tf_keras
import tensorflow as tf
import de_core as de
data = sys.argv[1]
inputs = [tf_keras.Input([], dtype="int64") for _ in range(2)]
rows = [de.layers.Embedding(dim)(each) for dim, each in zip((3, 2), inputs)]
head = tf_keras.layers.Dense(1, kernel_initializer="zeros")
model = tf_keras.Model(inputs, head(tf.concat(rows, 1)))
model.compile(de.DynamicEmbeddingOptimizer(tf_keras.optimizers.Adam()), "mse")
for load in (
    lambda: model.load_weights(data + "/weights/model"),
    lambda: model.load_weights(data + "/saved_model/variables/variables"),
    lambda: model.load_weights(data + "/no_rows.weights.h5"),
    lambda: tf.train.Checkpoint(model=model).restore(data + "/legacy_adam/ckpt"),
    lambda: tf.train.Checkpoint(model=model).read(data + "/beside/ckpt"),
):
    try:
        load()
        print("loaded")
    except ValueError as error:
        print("import_checkpoint" in str(error), end=" ")
    assert not head.kernel.numpy().any()
"""


def test_a_table_refuses():
    table = de.Variable(dim=2, name="plain")
    with pytest.raises(ValueError, match=REFUSED):
        tf.train.Checkpoint(tables={"plain": table}).restore(str(DATA / "dtypes/ckpt"))


@pytest.mark.parametrize("form", ["new_adam", "beside"])
def test_an_optimizer_refuses(form):
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
    with pytest.raises(ValueError, match=REFUSED):
        tf.train.Checkpoint(optimizer=optimizer).restore(str(DATA / form / "ckpt"))


@pytest.mark.parametrize("path", ["new_adam/ckpt", "saver_adam/model.ckpt-12"])
def test_a_warm_start_refuses(path):
    table = de.Variable(dim=2, name="deep_users")
    with pytest.raises(ValueError, match=r"must be imported.*`de-core import-tfra`"):
        de.warm_start(str(DATA / path), [table])


def restored_by_a_saver(folder):
    with tf.compat.v1.Session() as session:
        tf.compat.v1.train.Saver().restore(session, str(folder / "model.ckpt-12"))


def restored_by_a_monitored_session(folder):
    tf.compat.v1.train.MonitoredTrainingSession(checkpoint_dir=str(folder))


@pytest.mark.parametrize("restore", [restored_by_a_saver, restored_by_a_monitored_session])
def test_a_saver_of_tensorflow_1_finds_no_rows(restore, tmp_path):
    for file in (DATA / "saver_adam").glob("model.ckpt-12*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-12"\n')
    with tf.Graph().as_default():
        de.get_variable("deep/users", dim=2)
        tf.compat.v1.train.get_or_create_global_step()
        # TensorFlow reads the checkpoint before it calls us. The import page quotes its error.
        with pytest.raises(tf.errors.NotFoundError, match=r"Key deep\S+users\S+ not found"):
            restore(tmp_path)


def test_files_of_another_layout_name_the_importer():
    table = de.Variable(dim=2, name="scope_plain")
    with pytest.raises(tf.errors.NotFoundError, match=r"If tfra wrote.*`de-core import-tfra`"):
        table.load_from_file_system(str(DATA / "files_plain"))


def test_a_layer_refuses():
    root = tf.Module()
    setattr(root, "layer_with_weights-0", de.layers.Embedding(3))
    with pytest.raises(ValueError, match=REFUSED):
        tf.train.Checkpoint(root).restore(str(DATA / "weights/model"))


def test_programs_without_tables_and_own_checkpoints_are_not_refused(tmp_path):
    bias = tf.Variable([0.0])
    module = tf.Module()
    setattr(module, "layer_with_weights-2", tf.Module())
    getattr(module, "layer_with_weights-2").bias = bias
    tf.train.Checkpoint(module).read(str(DATA / "weights/model")).expect_partial()
    assert float(bias[0]) != 0
    table = de.Variable(dim=1)
    table.upsert([1], [[2.0]])
    checkpoint = tf.train.Checkpoint(table=table)
    path = checkpoint.write(str(tmp_path / "own"))
    table.clear()
    checkpoint.read(path).assert_consumed()
    assert int(table.size()) == 1


def test_load_weights_of_tf_keras_refuses(run_python, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    # Keras refuses the last form itself: the layers in the file have other variables.
    assert run_python(LEGACY, DATA).split() == ["True", "True", "False", "True", "True"]
