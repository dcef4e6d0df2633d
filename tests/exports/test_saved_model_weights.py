"""Loading the weights of a SavedModel into a model also restores the rows of its tables."""

import textwrap

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

MODEL = """
    import sys
    import numpy as np
    import tensorflow as tf
    import tf_keras as keras
    import de_core as de

    folder, ids = sys.argv[1], tf.constant([[1, 2], [3, 4]], tf.int64)
    FAMILIES = {"new": keras.optimizers, "legacy": keras.optimizers.legacy}

    def made(family, name):
        layer = de.layers.Embedding(
            4, combiner="sum", name=name, devices=["/CPU:0"] * (1 + (family == "new"))
        )
        model = keras.Sequential([keras.Input([2], dtype="int64"), layer, keras.layers.Dense(1)])
        model.compile(de.DynamicEmbeddingOptimizer(FAMILIES[family].Adam(0.1)), "mse")
        return model
"""
SAVE = """
    for family in FAMILIES:
        model = made(family, "items")
        model.fit(ids, tf.ones([2, 1]), epochs=3, verbose=0)
        model.save(f"{folder}/{family}", save_format="tf")
        np.save(f"{folder}/{family}.npy", model(ids))
"""
LOAD = """
    for family in FAMILIES:
        wanted = np.load(f"{folder}/{family}.npy")
        loaded = keras.models.load_model(f"{folder}/{family}")
        np.testing.assert_allclose(loaded(ids), wanted, atol=1e-6)
        assert type(loaded.optimizer.inner_optimizer) is FAMILIES[family].Adam

        model = made(family, "items")
        assert np.abs(model(ids) - wanted).max() > 1e-3
        model.load_weights(f"{folder}/{family}")
        np.testing.assert_array_equal(model(ids), wanted)
        assert int(model.get_layer("items").table.size()) == 4
        model.fit(ids, tf.ones([2, 1]), verbose=0)

        other = made(family, "others")
        try:
            other.load_weights(f"{folder}/{family}")
        except ValueError as error:
            assert "Give the layer the saved name, or use de.warm_start" in str(error), error
        else:
            raise AssertionError("loaded without rows")
"""


@pytest.mark.slow
def test_another_process_loads_a_compiled_model_of_tf_keras_and_its_weights(
    run_python, monkeypatch, tmp_path
):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    for part in (SAVE, LOAD):
        run_python(textwrap.dedent(MODEL) + textwrap.dedent(part), tmp_path)


def module_of(name, rows=()):
    module = tf.Module()
    module.table = de.Variable(dim=2, name=name, devices=["/CPU:0"] * 2)
    module.dense = tf.Variable([float(len(rows))])
    if len(rows):
        module.table.upsert(np.arange(len(rows)), rows)
    specs = [tf.TensorSpec([None], tf.int64)]
    module.look = tf.function(lambda ids: module.table.lookup(ids) * module.dense, specs)
    return module


def test_a_checkpoint_of_a_saved_models_variables_brings_the_rows(tmp_path):
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    module = module_of("users", rows)
    tf.saved_model.save(module, str(tmp_path), signatures=module.look)
    prefix = str(tmp_path / "variables" / "variables")
    target = module_of("users")
    target.table.upsert([99], [[1.0, 1.0]])
    tf.train.Checkpoint(table=target.table, dense=target.dense).read(prefix).expect_partial()
    assert float(target.dense[0]) == 10
    assert int(target.table.size()) == 10
    np.testing.assert_array_equal(target.table.lookup(np.arange(10)), rows)
    other = module_of("others")
    with pytest.raises(ValueError, match=r"'others'.*'users'.*de\.warm_start"):
        tf.train.Checkpoint(table=other.table).read(prefix)
    assert de.warm_start(tmp_path, [other.table], {"others": "users"}) == ["others"]
    np.testing.assert_array_equal(other.table.lookup(np.arange(10)), rows)
