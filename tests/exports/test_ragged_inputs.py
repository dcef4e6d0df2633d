"""Exports of models with ragged and sparse ids match the model, also over REST."""

import json
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.exports.test_export import ANSWERS
from tests.server.support.gateway_process import GatewayProcess

IDS = tf.ragged.constant([[3], [], [1, 2, 0, 3]], dtype=tf.int64)
NESTED = tf.ragged.constant([[[3, 4], []], [], [[1], [2, 0]]], dtype=tf.int64)
WORDS = tf.ragged.constant([["red"], ["", "blue"], []])


def lengths(ragged):
    return [each.numpy().tolist() for each in ragged.nested_row_lengths()]


def requests():
    nested = dict(
        zip(["nested_row_lengths_0", "nested_row_lengths_1"], lengths(NESTED), strict=True)
    )
    sparse = WORDS.to_sparse()
    return {
        "ids_values": IDS.values.numpy().tolist(),
        "ids_row_lengths": lengths(IDS)[0],
        "nested_values": NESTED.flat_values.numpy().tolist(),
        **nested,
        "words_indices": sparse.indices.numpy().tolist(),
        "words_values": sparse.values.numpy().astype(str).tolist(),
        "words_dense_shape": sparse.dense_shape.numpy().tolist(),
        "age": [[1.0], [2.0], [3.0]],
    }


def model():
    inputs = {
        "ids": keras.Input([None], dtype="int64", ragged=True, name="ids"),
        "nested": keras.Input([None, None], dtype="int64", ragged=True, name="nested"),
        "words": keras.Input([None], dtype="string", sparse=True, name="words"),
        "age": keras.Input([1], name="age"),
    }
    ids = de.layers.Embedding(2, combiner="sum", name="of_ids")
    nested = de.layers.SquashedEmbedding(2, combiner="mean", name="of_nested")
    words = de.layers.Embedding(2, "string", combiner="sqrtn", name="of_words")
    ids.table.upsert([0, 1], [[9.0, 9.0], [1.0, 2.0]])  # a padding id would change the sums
    rows = [ids(inputs["ids"]), nested(inputs["nested"]), words(inputs["words"]), inputs["age"]]
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(rows)))


def answer(served):
    features = {"ids": IDS, "nested": NESTED, "words": WORDS.to_sparse()}
    return served({**features, "age": tf.constant([[1.0], [2.0], [3.0]])}).numpy()


@pytest.mark.parametrize(
    "entry_point", [de.export, pytest.param(de.publish, marks=pytest.mark.slow)]
)
def test_another_process_gives_the_same_answers(entry_point, run_python, tmp_path):
    served = model()
    path = entry_point(served, tmp_path)
    asked = {"serving_default": requests()}
    answers = json.loads(run_python(ANSWERS, path, json.dumps(asked)))
    np.testing.assert_allclose(answers["serving_default"]["output_0"], answer(served), rtol=1e-5)


@pytest.mark.slow
def test_the_gateway_gives_the_same_answers(tmp_path):
    served = model()
    de.export(served, tmp_path / "m")
    with GatewayProcess(tmp_path / "m", tmp_path / "log") as gateway:
        gateway.wait_ready()

        def ask(request):
            return gateway.ask("POST", "/v1/models/m:predict", {"inputs": request}).json()

        # At once, so that the server can batch them.
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(ask, [requests()] * 8))
        for reply in replies:
            np.testing.assert_allclose(reply["outputs"], answer(served), rtol=1e-5)
        assert "error" in ask({**requests(), "ids_row_lengths": [1, 0, 9]})


class Looking(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = de.Variable(dim=2, initializer="uniform", name="t")

    def __call__(self, inputs):
        return self.table.lookup(inputs["history"].values)


def test_an_input_that_is_declared_ragged(tmp_path):
    module = Looking()
    spec = tf.RaggedTensorSpec([None, None], tf.int64)
    path = de.export(module, tmp_path, inputs={"history": spec})
    serve = tf.saved_model.load(path).signatures["serving_default"]
    rows = serve(history_values=IDS.values, history_row_lengths=IDS.row_lengths())["output_0"]
    np.testing.assert_array_equal(rows, module.table.lookup(IDS.values))
    with pytest.raises(tf.errors.InvalidArgumentError):
        serve(history_values=IDS.values, history_row_lengths=tf.constant([1, 9], tf.int64))
    specs = {"history": spec, "history_values": tf.TensorSpec([None], tf.int64)}
    with pytest.raises(ValueError, match="rename an input"):
        de.export(module, tmp_path, inputs=specs)
    with pytest.raises(TypeError, match=r"`inputs` must be a tf.TensorSpec, a tf.RaggedTensorSpec"):
        de.export(module, tmp_path, inputs={"history": tf.int64})


def test_rows_of_ragged_ids_are_exported_as_values_and_lengths(tmp_path):
    inputs = keras.Input([None], dtype="int64", ragged=True, name="ids")
    layer = de.layers.Embedding(2, name="rows")
    path = de.export(keras.Model(inputs, layer(inputs)), tmp_path)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    answers = serve(ids_values=IDS.values, ids_row_lengths=IDS.row_lengths())
    assert answers["output_0_row_lengths"].numpy().tolist() == [1, 0, 4]
    np.testing.assert_array_equal(answers["output_0_values"], layer(IDS).values)


def test_keras_own_export_warns_that_it_pads(tmp_path):
    inputs = keras.Input([None], dtype="int64", ragged=True, name="ids")
    masked = de.layers.Embedding(2, combiner="sum", mask_key=0)
    keras.Model(inputs, masked(inputs)).export(str(tmp_path / "masked"), verbose=False)
    layer = de.layers.Embedding(2, combiner="sum")
    counting = keras.Model(inputs, layer(inputs))
    with pytest.warns(UserWarning, match="dense here, but ragged in the model(?s:.)*de.export"):
        counting.export(str(tmp_path / "counting"), verbose=False)


@pytest.mark.slow
def test_ragged_models_of_tf_keras(run_python, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    program = """
        import json, sys
        import tensorflow as tf, tf_keras
        import de_core as de
        class Sums(tf_keras.Model):
            def __init__(self):
                super().__init__()
                self.table = de.layers.Embedding(2, combiner="sum", name="t")
                self.score = tf_keras.layers.Dense(1)
            def call(self, ids):
                return self.score(self.table(ids))
        ids = tf.ragged.constant([[3], [], [1, 2, 0, 3]], dtype=tf.int64)
        inputs = tf_keras.Input([None], dtype="int64", ragged=True, name="ids")
        functional, subclassed = tf_keras.Model(inputs, Sums().call(inputs)), Sums()
        subclassed.table.table.upsert([0], [[9.0, 9.0]])
        for number, (model, name) in enumerate([(functional, "ids"), (subclassed, "inputs")]):
            wanted = model(ids)
            path = de.export(model, f"{sys.argv[1]}/{number}")
            serve = tf.saved_model.load(path).signatures["serving_default"]
            values, lengths = [name + "_values", name + "_row_lengths"]
            given = {values: ids.values, lengths: ids.row_lengths()}
            tf.debugging.assert_near(serve(**given)["output_0"], wanted)
        print("done")
    """
    assert run_python(program, tmp_path).strip() == "done"
