"""No op of a table is placed on a GPU.

These tests need no GPU: they read the devices that ops ask for and have kernels for.
"""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library

ROOT = Path(__file__).resolve().parents[2]
IDS = tf.constant([[1, 2], [3, 3]], tf.int64)
OPS = {
    "".join(part.capitalize() for part in name.split("_"))
    for name in dir(library)
    if name.startswith("de_") and callable(getattr(library, name))
}


def model_of(optimizer):
    given = keras.Input([2], dtype="int64")
    layer = de.layers.Embedding(4, combiner="mean", initializer="ones")
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Model(given, dense(layer(given)))
    model.compile(de.DynamicEmbeddingOptimizer(optimizer), "mse", run_eagerly=True)
    return model


def nodes_of(graph):
    """Yields the nodes of a graph and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


@pytest.fixture
def soft_placement():
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(before)


def test_every_kernel_is_for_the_cpu():
    files = [*(ROOT / "de_core/cc/kernels").rglob("*.*"), *(ROOT / "de_core/cc/tfra").rglob("*.*")]
    text = "".join(file.read_text("utf-8") for file in files)
    assert set(re.findall(r"DEVICE_[A-Z]+", text)) == {"DEVICE_CPU"}


@pytest.mark.usefixtures("soft_placement")
def test_the_ops_of_a_lookup_and_a_step_ask_for_no_gpu():
    table = de.Variable(dim=4, initializer="ones")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1, clipnorm=1.0))
    optimizer.build(table.trainable_variables)

    @tf.function
    def step(ids):
        with tf.device("GPU:0"), tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.embedding_lookup(table, ids) ** 2)
        gradients = tape.gradient(loss, table.trainable_variables)
        with tf.device("GPU:0"):
            optimizer.apply(gradients, table.trainable_variables)
        return loss

    nodes = [*nodes_of(step.get_concrete_function(IDS).graph.as_graph_def())]
    assert any("GPU:0" in node.device for node in nodes)
    of_tables = [node for node in nodes if node.op in OPS and "Table" in node.op]
    assert {node.op for node in of_tables} >= {"DeTableFind", "DeTablesApply"}
    assert [node.name for node in of_tables if "GPU" in node.device] == []
    assert float(step(IDS)) == 16.0  # the other ops of tables run on the CPU all the same


@pytest.mark.usefixtures("soft_placement")
def test_a_fit_within_the_scope_of_a_gpu_equals_one_without():
    answers = []
    for device in ("CPU:0", "GPU:0"):
        model = model_of(keras.optimizers.Adam(0.1))
        with tf.device(device):
            model.fit(IDS, np.zeros([2, 1]), epochs=3, verbose=0)
        answers.append(model(IDS).numpy())
    assert np.array_equal(*answers)


def test_an_export_asks_for_no_gpu(tmp_path):
    path = de.export(model_of("sgd"), tmp_path / "exported")
    loaded = tf.saved_model.load(str(path))
    graph = loaded.signatures["serving_default"].graph.as_graph_def()
    nodes = [node for node in nodes_of(graph) if node.op in OPS]
    assert nodes
    assert [node.name for node in nodes if "GPU" in node.device] == []
