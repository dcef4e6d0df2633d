"""Subclassed models that were called are exported without `inputs`, or the error says why not."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import served

IDS = np.array([[1, 2, 3], [4, 5, 6]])


class Of(keras.Model):
    """A model of two tables. `function` combines their rows; a dense layer scores the result."""

    def __init__(self, function, key_dtype="int64", combiner="mean", **arguments):
        super().__init__(**arguments)
        self.function = function
        self.rows = de.layers.Embedding(4, key_dtype, combiner=combiner, name="rows")
        self.others = de.Variable(dim=4, name="others", initializer="uniform")
        self.score = keras.layers.Dense(1)

    def call(self, inputs):
        return self.score(self.function(self, inputs))


def first_and_others(model, ids):
    return model.rows(tf.reshape(ids[:, 1:], [-1, 2])) + model.others.lookup(ids[:, 0] + 1)


def by_name(model, inputs):
    return tf.concat([model.rows(inputs["item"]), model.others.lookup(inputs["user"])], -1)


def by_place(model, inputs):
    return model.rows(inputs[0]) * tf.reduce_sum(model.others.lookup(inputs[1]), 1)


def only_rows(model, ids):
    return model.rows(ids)


CASES = {
    "one input": (only_rows, "int64", tf.constant(IDS)),
    "of int32": (only_rows, "int32", tf.constant(IDS, tf.int32)),
    "of strings": (only_rows, "string", tf.constant([["a", "b"], ["c", ""]])),
    "in parts": (first_and_others, "int64", tf.constant(IDS)),
    "a dict": (
        by_name,
        "string",
        {"user": tf.constant(IDS[0, :2]), "item": tf.constant([["a"], ["b"]])},
    ),
    "a list": (by_place, "int64", [tf.constant(IDS), tf.constant(IDS[:, :2])]),
}


def requests(inputs):
    if isinstance(inputs, dict):
        return inputs
    if isinstance(inputs, list):
        return {f"input_{number}": each for number, each in enumerate(inputs)}
    return {"inputs": inputs}


@pytest.mark.each_choice
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("entry_point", [de.export, de.publish])
def test_a_called_model_needs_no_inputs(case, entry_point, tmp_path):
    function, key_dtype, inputs = CASES[case]
    model = Of(function, key_dtype)
    inputs = tf.nest.map_structure(lambda each: tf.cast(each, each.dtype), inputs)
    wanted = model(inputs)
    path = entry_point(model, tmp_path)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    specs = serve.structured_input_signature[1]
    asked = requests(inputs)
    assert {name: spec.dtype for name, spec in specs.items()} == {
        name: each.dtype for name, each in asked.items()
    }
    np.testing.assert_allclose(serve(**asked)["output_0"], wanted, atol=1e-6)
    one = {name: each[:1] for name, each in asked.items()}
    np.testing.assert_allclose(serve(**one)["output_0"], wanted[:1], atol=1e-6)


def test_a_trained_model_needs_no_inputs(tmp_path):
    model = Of(by_name)
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    inputs = {"user": np.arange(8), "item": np.arange(16).reshape(8, 2)}
    model.fit(inputs, np.ones([8, 1]), verbose=0)
    answer = served(de.export(model, tmp_path), **inputs)
    np.testing.assert_allclose(answer, model(inputs), atol=1e-6)


def refusal(model, tmp_path):
    with pytest.raises(ValueError, match="pass `inputs`") as error:
        de.export(model, tmp_path)
    assert not list(tmp_path.iterdir())
    return str(error.value)


def test_what_no_table_sees_is_refused_with_the_remedy(tmp_path):
    priced = Of(lambda model, inputs: model.rows(inputs["item"]) * inputs["price"])
    priced({"item": tf.constant(IDS), "price": tf.ones([2, 1])})
    assert "The dtype of each input" in refusal(priced, tmp_path)
    cast = Of(lambda model, ids: model.rows(tf.cast(ids, tf.int64)))
    cast(tf.constant(IDS, tf.float64))
    assert "The dtype of each input" in refusal(cast, tmp_path)
    lower = Of(lambda model, words: model.rows(tf.strings.lower(words)), "string")
    lower(tf.constant([["A"]]))
    assert "fails on placeholders" in refusal(lower, tmp_path)


def looked_up(model, ids):
    return tf.reduce_sum(de.embedding_lookup(model.others, ids), 1)


@pytest.mark.parametrize(
    ("function", "kind"), [(only_rows, "ragged"), (only_rows, "sparse"), (looked_up, "ragged")]
)
def test_ragged_and_sparse_inputs_are_not_taken_for_dense_ones(function, kind, tmp_path):
    model = Of(function)
    ragged = tf.RaggedTensor.from_tensor(tf.constant(IDS))
    model(ragged if kind == "ragged" else ragged.to_sparse())
    assert kind in refusal(model, tmp_path)


def test_a_model_that_was_not_called_here_is_refused(tmp_path):
    assert "The inputs of the model's call must be known" in refusal(Of(only_rows), tmp_path)
    built = Of(only_rows)
    built.build_from_config({"input_shape": (None, 3)})  # like a loaded model
    assert "saw no ids" in refusal(built, tmp_path)
