"""Tests what one more table adds to a SavedModel: loaders spend milliseconds on each such thing."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import de_core as de
from server.engines.embedded.saved_model import SavedModel

DIM = 2


def exported(count, folder):
    names = [f"t{number}" for number in range(count)]
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in names}
    rows = [de.layers.Embedding(DIM, name=f"table_{name}")(each) for name, each in inputs.items()]
    model = keras.Model(inputs, keras.layers.Concatenate()(rows))
    for number, layer in enumerate(each for each in model.layers if hasattr(each, "table")):
        layer.table.upsert(np.arange(3), np.full([3, DIM], number + 0.5, np.float32))
    return de.export(model, folder)


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    return {count: exported(count, tmp_path_factory.mktemp("many")) for count in (2, 5)}


def parts(version):
    file = Path(version, "saved_model.pb")
    (saved,) = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs
    functions = [each.signature.name for each in saved.graph_def.library.function]
    return {
        "functions": len(functions),
        "openers": sum("initialize" in name for name in functions),
        "variables": sum(node.WhichOneof("kind") == "variable" for node in nodes(saved)),
        "traced": sum(node.WhichOneof("kind") == "function" for node in nodes(saved)),
    }


def nodes(saved):
    return saved.object_graph_def.nodes


def test_a_table_adds_three_functions_and_no_variable(versions):
    few, many = parts(versions[2]), parts(versions[5])
    # The functions look up rows (two) and create the table.
    added = {name: many[name] - few[name] for name in few}
    assert added == {"functions": 9, "openers": 0, "variables": 0, "traced": 0}


def test_each_table_answers_in_both_loaders(versions):
    session = SavedModel(Path(versions[5]))
    signatures = tf.saved_model.load(versions[5]).signatures
    ids = np.array([0, 2], np.int64)
    for number in range(5):
        name = f"de_lookup/table_t{number}"
        for found in (session.run(name, {"ids": ids}), signatures[name](ids=tf.constant(ids))):
            np.testing.assert_array_equal(found["embeddings"], np.full([2, DIM], number + 0.5))
    requests = {f"t{number}": ids for number in range(5)}
    expected = np.repeat(np.arange(5) + 0.5, DIM)[None].repeat(2, 0)
    (answer,) = session.run("serving_default", requests).values()
    np.testing.assert_array_equal(answer, expected)
    session.close()
