"""Tests the save methods of tf_keras, which include the tables."""

TF_KERAS = """
    import sys
    import numpy as np
    import tensorflow as tf
    import tf_keras as keras
    import de_core as de

    asked = tf.constant([7, 8], tf.int64)
    for trainable in (True, False):
        layer = de.layers.Embedding(2, name="t", trainable=trainable)
        layer.table.upsert([7], [[1.0, 2.0]])
        model = keras.Sequential([keras.Input([], dtype="int64"), layer, keras.layers.Dense(1)])
        assert len(model.trainable_variables) == 2 + trainable
        model.compile(de.DynamicEmbeddingOptimizer("sgd"), "mse")
        folder = f"{sys.argv[1]}-{trainable}"
        model.save(folder, save_format="tf")
        loaded = tf.saved_model.load(folder)
        (got,) = loaded.signatures["serving_default"](asked).values()
        np.testing.assert_array_equal(got, model(asked))
        loaded = keras.models.load_model(folder)
        np.testing.assert_array_equal(loaded.predict(asked, verbose=0), model(asked))
        if trainable:
            try:
                loaded.compile(de.DynamicEmbeddingOptimizer("sgd"), "mse")
                loaded.fit(asked, asked, verbose=0)
            except RuntimeError as error:
                assert "The tables of a SavedModel are read-only" in str(error), error
            else:
                raise AssertionError("trained")
        model.export(f"{folder}-exported")
        loaded = tf.saved_model.load(f"{folder}-exported")
        np.testing.assert_array_equal(loaded.serve(asked), model(asked))
        de.publish(model, f"{folder}-published")
"""


def test_saves_of_tf_keras_include_the_tables(run_python, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    run_python(TF_KERAS, tmp_path / "saved")
