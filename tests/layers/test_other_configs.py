"""Tests that a collection takes the configs of keras-rs and tf.tpu, made by the real packages."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY
from tests.support.applies import applies_if

# Keras converts its variables through an `__array__` that numpy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

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


def test_a_custom_combiner_is_refused():
    table = TPU.TableConfig(5, 2, combiner="sum")
    table.combiner = object()
    with pytest.raises(TypeError, match="combiner must be one of sum, mean, sqrtn"):
        de.layers.EmbeddingCollection([TPU.FeatureConfig(table)])


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


def test_a_schedule_of_tf_tpu_is_refused():
    table = TPU.TableConfig(5, 2, optimizer=TPU.SGD(lambda: 0.5), name="t")
    with pytest.raises(TypeError, match="must be a number here"):
        de.layers.EmbeddingCollection([TPU.FeatureConfig(table)])
