"""`model.summary()` shows the rows and bytes of tables, in Keras 3 and tf_keras."""

import numpy as np
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras


def summary(model):
    lines = []
    model.summary(
        print_fn=lambda text, **_: lines.append(text), line_length=400 if LEGACY else None
    )
    return "\n".join(lines)


def test_a_summary_shows_values_rows_and_bytes_and_that_the_totals_leave_them_out():
    model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(8, name="users")])
    table = model.get_layer("users").table
    table.upsert(range(1500), tf.ones([1500, 8]))
    text = summary(model)
    kilobytes = table.memory_usage()["total"] / 1000
    for part in ("12,000", "1,500 rows", f"{kilobytes:.1f} kB"):
        assert part in text
    assert LEGACY or "not in totals" in text


def test_a_summary_shows_the_numbers_of_all_tables_of_a_collection():
    users, items = de.TableConfig("users", 8), de.TableConfig("items", 4)
    layer = de.layers.EmbeddingCollection(
        {
            name: de.FeatureConfig(name, items if name != "user" else users)
            for name in ("user", "viewed", "bought")
        }
    )
    layer.tables["users"].upsert(range(1500), tf.ones([1500, 8]))
    layer.tables["items"].upsert(range(250), tf.ones([250, 4]))
    assert layer.count_params() == 13_000
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in layer.features}
    text = summary(keras.Model(inputs, layer(inputs)))
    kilobytes = sum(each.memory_usage()["total"] for each in layer.tables.values()) / 1000
    for part in ("13,000", "1,750 rows", f"{kilobytes:.1f} kB"):
        assert part in text


def test_a_layer_counts_the_values_of_its_table():
    layer = de.layers.Embedding(8, devices=["CPU:0", "CPU:0"])
    assert layer.count_params() == 0
    layer.table.upsert(range(5), np.ones([5, 8], np.float32))
    assert layer.count_params() == 40
    assert layer.table.count_params() + 2 == 42
    assert f"{layer.count_params():>4d}" == "  40"


def test_a_graph_counts_nothing():
    with tf.Graph().as_default():
        assert de.Variable(dim=2, name="t").count_params() == 0
