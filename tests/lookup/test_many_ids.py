"""Tests lookups of features in batches large enough for several threads."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de


@pytest.mark.parametrize("key_dtype", ["int64", "int32", "string"])
@pytest.mark.parametrize("concatenate", [False, True])
def test_large_batches_on_several_threads_equal_separate_layers(key_dtype, concatenate):
    rng = np.random.default_rng(0)
    wide, small = (de.TableConfig(name, 3, key_dtype=key_dtype) for name in ("wide", "small"))
    features = {
        "a": de.FeatureConfig("a", wide, "sum"),
        "b": de.FeatureConfig("b", wide, "mean"),
        "c": de.FeatureConfig("c", small, "sqrtn"),
        "d": de.FeatureConfig("d", small, "sum"),
    }
    layer = de.layers.EmbeddingCollection(features, concatenate=concatenate)
    peers = {
        name: de.layers.Embedding(3, key_dtype, combiner=config.combiner, name=config.table.name)
        for name, config in features.items()
    }
    for name, config in features.items():
        peers[name].table = layer.tables[config.table.name]
    widths = {"a": 1, "b": 1, "c": 2, "d": 1}
    ids = {}
    for name, width in widths.items():
        drawn = rng.integers(0, 500, [20_000, width])
        ids[name] = tf.constant(drawn.astype(str if key_dtype == "string" else key_dtype))
    anchors = [each.trainable_variables[0] for each in layer.tables.values()]

    def gradients(look_up):
        with tf.GradientTape() as tape:
            rows = look_up()
            loss = tf.reduce_sum(rows * tf.range(12.0) * tf.range(20_000.0)[:, None])
        return rows, tape.gradient(loss, anchors)

    def together():
        rows = layer(ids)
        return rows if concatenate else tf.concat(list(rows.values()), 1)

    rows, found = gradients(together)
    wanted_rows, wanted = gradients(
        lambda: tf.concat([peers[name](each) for name, each in ids.items()], 1)
    )
    np.testing.assert_array_equal(rows, wanted_rows)
    for one, other in zip(found, wanted, strict=True):
        sums = []
        for gradient in (one, other):
            order = gradient.indices.numpy().astype(int)
            total = np.zeros([500, 3])
            np.add.at(total, order, gradient.values.numpy())
            sums.append(total)
        np.testing.assert_allclose(sums[0], sums[1], rtol=1e-5)
