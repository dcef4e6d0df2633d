"""Tests that a collection takes the configs of keras-rs and tf.tpu, made by the real packages."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras
from tests.support.applies import applies_if
from tests.support.models import served

TPU = tf.tpu.experimental.embedding


@applies_if(not LEGACY, "Keras 3, for keras-rs")
def test_configs_of_keras_rs_declare_the_same_features():
    from keras_rs import layers  # refuses tf_keras

    items = layers.TableConfig("items", vocabulary_size=50, embedding_dim=4, combiner="sum")
    features = {
        "seen": layers.FeatureConfig("seen", items, input_shape=(2, 3), output_shape=(2, 4)),
        "item": layers.FeatureConfig("item", items, input_shape=(2,), output_shape=(2, 4)),
    }
    theirs = layers.DistributedEmbedding(features)
    ours = de.layers.EmbeddingCollection(features)
    ids = {"seen": tf.constant([[1, 2, 2], [4, 5, 6]]), "item": tf.constant([1, 7])}
    theirs.build({name: tuple(each.shape) for name, each in ids.items()})
    (rows,) = theirs.get_embedding_tables().values()
    ours.tables["items"].upsert(np.arange(50), np.asarray(rows))
    assert list(ours.tables) == ["items"]
    wanted, found = theirs(ids), ours(ids)
    for name, each in wanted.items():
        np.testing.assert_allclose(found[name], each, rtol=1e-6, atol=1e-6)
    weights = {"seen": tf.constant([[1.0, 2, 3], [0.5, 1, 1]]), "item": tf.constant([2.0, 3])}
    wanted, found = theirs(ids, weights), ours(ids, weights)
    for name, each in wanted.items():
        np.testing.assert_allclose(found[name], each, rtol=1e-6, atol=1e-6)
    assert ours.features["seen"].max_length == 3
    assert ours.tables["items"].optimizer.get_config()["optimizer"]["class_name"] == "Adam"


def test_configs_of_tf_tpu_declare_the_same_features():
    items = TPU.TableConfig(50, 4, tf.constant_initializer(0.5), combiner="sqrtn", name="items")
    features = [
        TPU.FeatureConfig(items, name="pooled"),
        TPU.FeatureConfig(items, max_sequence_length=2, name="list"),
    ]
    ids = tf.ragged.constant([[3, 4, 5, 6], [7]], dtype=tf.int64)
    layer = de.layers.EmbeddingCollection(features)
    pooled, rows = layer([ids, ids])
    wanted = TPU.serving_embedding_lookup(
        [ids.to_sparse()] * 2,
        [None] * 2,
        {items: tf.Variable(tf.fill([50, 4], 0.5))},
        features,
    )
    np.testing.assert_allclose(pooled, wanted[0], rtol=1e-6)
    np.testing.assert_allclose(rows, wanted[1], rtol=1e-6)


def test_features_without_a_name_are_named_by_their_place():
    table = TPU.TableConfig(5, 2, combiner="sum")
    layer = de.layers.EmbeddingCollection({"user": {"id": TPU.FeatureConfig(table)}})
    assert layer.features["user"]["id"].name == "user_id"
    assert list(layer.tables) == ["table_0"]


@applies_if(not LEGACY, "Keras 3, for an optimizer per table")
def test_optimizers_of_tf_tpu_become_those_of_keras():
    kinds = [
        (TPU.SGD(0.5), {"learning_rate": 0.5}),
        (TPU.Adagrad(0.25, 0.125), {"initial_accumulator_value": 0.125}),
        (TPU.Adam(0.25, beta_1=0.5, epsilon=0.125), {"beta_1": 0.5, "epsilon": 0.125}),
        (TPU.FTRL(0.25, l1_regularization_strength=0.5), {"l1_regularization_strength": 0.5}),
    ]
    features = [
        TPU.FeatureConfig(
            TPU.TableConfig(5, 2, optimizer=given, name=f"t{number}"), name=f"f{number}"
        )
        for number, (given, _) in enumerate(kinds)
    ]
    layer = de.layers.EmbeddingCollection(features)
    for table, (given, wanted) in zip(layer.tables.values(), kinds, strict=True):
        made = table.optimizer.get_config()["optimizer"]
        assert made["class_name"].lower() == type(given).__name__.lower()
        assert {name: made["config"][name] for name in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("combiner", object(), "combiner must be one of sum, mean, sqrtn"),
        ("optimizer", TPU.SGD(lambda: 0.5), "must be a number here"),
        *(
            ("optimizer", TPU.Adagrad(0.5, **limit), f"no limits and no .*Received: {shown}")
            for limit, shown in (
                ({"clipvalue": 0.5}, "clip_gradient_min=-0.5"),
                ({"clip_weight_max": 1.0}, "clip_weight_max=1.0"),
                ({"weight_decay_factor": 0.1}, "weight_decay_factor=0.1"),
            )
        ),
    ],
)
def test_what_has_no_counterpart_here_is_refused(attribute, value, message):
    table = TPU.TableConfig(5, 2, name="t", combiner="sum")
    setattr(table, attribute, value)
    with pytest.raises(TypeError, match=message):
        de.layers.EmbeddingCollection([TPU.FeatureConfig(table)])


def keras_rs_model():
    from keras_rs import layers  # refuses tf_keras

    optimizer = keras.optimizers.Adagrad(0.5)
    items = layers.TableConfig("items", 50, 4, combiner="sum", optimizer=optimizer)

    def feature(name, *shape):
        return layers.FeatureConfig(name, items, input_shape=shape, output_shape=(2, 4))

    return {"user": {"seen": feature("seen", 2, 3)}, "items": [feature("item", 2)]}


def tpu_model():
    items = TPU.TableConfig(50, 4, combiner="sqrtn", name="items", optimizer=TPU.Adagrad(0.5))
    return {
        "user": {"seen": TPU.FeatureConfig(items, max_sequence_length=3, name="seen")},
        "items": [TPU.FeatureConfig(items, name="item")],
    }


@applies_if(not LEGACY, "Keras 3, for an optimizer per table")
@pytest.mark.parametrize("configs", [keras_rs_model, tpu_model])
def test_models_of_other_configs_train_are_saved_and_exported(configs, tmp_path):
    inputs = {
        "user": {"seen": keras.Input([3], dtype="int64", name="seen")},
        "items": [keras.Input([], dtype="int64", name="item")],
    }
    layer = de.layers.EmbeddingCollection(configs())
    flat = [keras.layers.Flatten()(each) for each in tf.nest.flatten(layer(inputs))]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(flat)))
    seen, item = np.array([[1, 2, 2], [4, 5, 6]]), np.array([1, 7])
    ids = {"user": {"seen": seen}, "items": [item]}
    model.compile("sgd", "mse")
    model.fit(ids, np.ones([2, 1]), batch_size=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    wanted = model.predict(ids, verbose=0)
    np.testing.assert_array_equal(loaded.predict(ids, verbose=0), wanted)
    again = next(each for each in loaded.layers if hasattr(each, "tables"))
    assert int(again.tables["items"].size()) == 6
    for tables in (layer.tables, again.tables):
        assert float(tables["items"].optimizer.learning_rate) == 0.5
    unknown = layer.tables["items"].lookup([1234])  # a row of the initializer
    np.testing.assert_array_equal(again.tables["items"].lookup([1234]), unknown)
    answer = served(de.export(loaded, tmp_path / "m"), seen=seen, item=item)
    np.testing.assert_allclose(answer, wanted, rtol=1e-5)
