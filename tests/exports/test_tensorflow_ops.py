"""Exports with TensorFlow's own ops answer as exports with ours do, in programs without us."""

import pickle
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import looker, served

#: Loads versions in a program that has only TensorFlow, and writes their answers.
READER = """
import pickle, sys
import tensorflow as tf

with open(sys.argv[1], "rb") as file:
    asked = pickle.load(file)
answers = {}
for name, (path, signature, inputs) in asked.items():
    function = tf.saved_model.load(path).signatures[signature]
    try:
        found = function(**{each: tf.constant(value) for each, value in inputs.items()})
        answers[name] = {each: value.numpy() for each, value in found.items()}
    except tf.errors.InvalidArgumentError as error:
        answers[name] = str(error)
assert not any(name.startswith("de_core") for name in sys.modules)
with open(sys.argv[2], "wb") as file:
    pickle.dump(answers, file)
"""
ROWS = np.random.default_rng(0).normal(size=[50, 4]).astype(np.float32)
IDS = np.array([[3, 0, 7], [0, 0, 0], [49, 50, -1]])


def table(name, **arguments):
    return de.layers.Embedding(4, name=name, **arguments)


def filled(model):
    """Gives each table of a model the ids 0 to 49, as numbers or text."""
    layers = [each for each in model._flatten_layers() if isinstance(each, de.layers.Embedding)]
    for layer in layers:
        keys = np.arange(50)
        text = layer.table.key_dtype == tf.string
        layer.table.upsert(
            list(map(str, keys)) if text else keys, tf.cast(ROWS, layer.table.value_dtype)
        )
    return model


def pooled_and_text():
    ids, text = (
        keras.Input([3], dtype="int64", name="ids"),
        keras.Input([], dtype="string", name="text"),
    )
    parts = [
        table("mean", combiner="mean", mask_key=0, initializer=1.0)(ids),
        table("words", key_dtype="string")(text),
        table("half", combiner="sqrtn", value_dtype="bfloat16")(ids),
    ]
    parts[2] = keras.ops.cast(parts[2], "float32")
    return keras.Model([ids, text], keras.layers.Dense(2)(keras.ops.concatenate(parts, -1)))


def collection():
    shared = de.TableConfig("shared", 4)
    layer = de.layers.EmbeddingCollection(
        {
            "one": de.FeatureConfig("one", shared, "sum"),
            "few": de.FeatureConfig("few", shared, "mean", max_length=2),
        }
    )
    inputs = {each: keras.Input([3], dtype="int64", name=each) for each in ("one", "few")}
    model = keras.Model(inputs, layer(inputs))
    layer.tables["shared"].upsert(np.arange(50), ROWS)
    return model


def sparse_and_ragged():
    class Module(tf.Module):
        def __init__(self):
            self.users = de.Variable(dim=4, name="users", devices=["/CPU:0", "/CPU:0"])
            self.users.upsert(np.arange(50), ROWS)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 2], tf.int64, name="places"),
                tf.TensorSpec([None], tf.int64, name="ids"),
                tf.TensorSpec([None], tf.int64, name="lengths"),
            ]
        )
        def __call__(self, places, ids, lengths):
            sparse = tf.SparseTensor(places, ids, [4, 3])
            ragged = tf.RaggedTensor.from_row_lengths(ids, lengths)
            sums = de.safe_embedding_lookup_sparse(self.users, sparse, combiner="sum")
            return {"sums": sums, "rows": de.embedding_lookup(self.users, ragged).flat_values}

    return Module()


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Answers by case: of the version with TensorFlow's ops, and of the one with ours."""
    folder = tmp_path_factory.mktemp("plain")
    numbers = looker(de.Variable(dim=4, name="numbers", initializer="normal"))
    numbers.table.upsert(np.arange(50), ROWS)
    text = np.array(["3", "a\n", "49"])
    one = {"ids": IDS[0]}
    sparse = {
        "places": np.array([[0, 0], [0, 2], [3, 1]]),
        "ids": IDS[0],
        "lengths": np.array([1, 0, 2]),
    }
    keep = de.KeepRows(where=lambda keys: keys < 5)
    pooled = filled(pooled_and_text())
    unknown = {"words": 0.1, "half": -1.3}
    both, look = {"ids": IDS, "text": text}, numbers.look
    main = "serving_default"
    cases = {
        "pooled": (pooled, {"oov": unknown}, main, both),
        "stored as half": (pooled, {"dtype": "float16", "oov": unknown}, main, both),
        "one table": (pooled, {"oov": "zeros"}, "de_lookup/words", {"ids": text}),
        "collection": (collection(), {"oov": "zeros"}, main, {"one": IDS, "few": IDS}),
        "sparse": (sparse_and_ragged(), {}, main, sparse),
        "number": (numbers, {"signatures": look, "oov": 7.5, "keep": keep}, main, one),
        "row": (numbers, {"signatures": look, "oov": ROWS[1]}, main, {"ids": IDS[2]}),
        "error": (numbers, {"signatures": look, "oov": "error"}, main, {"ids": IDS[2]}),
    }
    ours, asked = {}, {}
    for name, (model, options, signature, inputs) in cases.items():
        plain = de.export(model, folder / name / "plain", ops="tensorflow", **options)
        asked[name] = str(plain), signature, inputs
        version = de.export(model, folder / name / "ours", **options)
        assert plain.report == version.report
        function = tf.saved_model.load(version).signatures[signature]
        if name != "error":
            found = function(**{each: tf.constant(value) for each, value in inputs.items()})
            ours[name] = {each: value.numpy() for each, value in found.items()}
    (folder / "asked").write_bytes(pickle.dumps(asked))
    command = [sys.executable, "-c", READER, str(folder / "asked"), str(folder / "answers")]
    subprocess.run(command, check=True, cwd=folder)
    theirs = pickle.loads((folder / "answers").read_bytes())
    return {name: (theirs[name], ours.get(name)) for name in cases}


@pytest.mark.parametrize(
    "case", ["pooled", "stored as half", "one table", "collection", "sparse", "number", "row"]
)
def test_tensorflow_alone_answers_bit_for_bit(answers, case):
    theirs, ours = answers[case]
    assert sorted(theirs) == sorted(ours)
    for name, value in ours.items():
        assert theirs[name].dtype == value.dtype
        np.testing.assert_array_equal(theirs[name], value)


def test_an_unknown_id_fails_where_it_must(answers):
    assert "every key must be in the table numbers." in answers["error"][0]
    assert "[50 -1]" in answers["error"][0]


@pytest.fixture
def module():
    made = looker(de.Variable(dim=2, name="users", initializer="normal"))
    spec = [tf.TensorSpec([None], tf.int64, name="ids")]
    made.size = tf.function(lambda: made.table.size(), input_signature=[])
    made.nested = tf.function(lambda ids: made.look(ids), input_signature=spec)
    made.nested.get_concrete_function()
    made.traced = made.look.get_concrete_function()
    return made


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        ("look", {"oov": "initial"}, "cannot draw the initial row.*Received: oov='initial'"),
        ("look", {"dtype": "int8"}, "Received: dtype='int8'"),
        ("look", {"ops": "onnx"}, "Received: ops='onnx'"),
        ("nested", {}, r"Received: signature 'serving_default' with.*DeTableFind"),
        ("size", {}, "can only look up rows.*de_table_size"),
        ("traced", {}, r"pass the tf\.function"),
    ],
)
def test_what_needs_our_ops_is_refused(module, tmp_path, signature, options, message):
    error = NotImplementedError if signature == "size" else ValueError
    options = {"ops": "tensorflow", "oov": 0.0, **options}
    with pytest.raises(error, match=message):
        de.export(module, tmp_path, getattr(module, signature), **options)
    assert list(tmp_path.iterdir()) == []
    assert len(module.table.lookup([1])) == 1  # the live table is as before


def test_another_thread_reads_the_live_table_meanwhile(module, tmp_path):
    seen = []

    def look(ids):
        thread = threading.Thread(target=lambda: seen.append(type(module.table.tables[0])))
        thread.start()
        thread.join()
        return module.table.lookup(ids)

    spec = [tf.TensorSpec([None], tf.int64, name="ids")]
    look = tf.function(look, input_signature=spec, autograph=False)
    de.export(module, tmp_path, look, ops="tensorflow", oov=0.0)
    assert set(seen) == {type(module.table.tables[0])}


@pytest.mark.parametrize("rows", [[3, 0, 0], [-1, 0, 0], [4, 0, 0], [0, 2, 1, 3]])
def test_rows_of_sparse_ids_must_ascend(tmp_path, rows):
    version = de.export(sparse_and_ragged(), tmp_path, ops="tensorflow")
    places = [[row, column % 3] for column, row in enumerate(rows)]
    asked = {"places": places, "ids": [3, 0, 7, 1][: len(rows)], "lengths": [len(rows)]}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must ascend.*Received: rows="):
        served(version, **asked)


@pytest.mark.parametrize("initializer", [3, 7])
def test_a_table_without_rows_and_with_any_name_is_exported(tmp_path, initializer):
    saved, table = (
        de.Variable(dim=2, name="5 users/ä", value_dtype=tf.int32, initializer=each)
        for each in (3, initializer)
    )
    de.checkpoint.save(saved, tmp_path / "c")
    de.checkpoint.restore(table, tmp_path / "c")  # with the saved initial row
    owner = looker(table)
    version = de.export(owner, tmp_path, owner.look, ops="tensorflow")
    assert served(version, ids=[1]).tolist() == [[3, 3]]


def test_a_scalar_id_has_a_row_of_rank_one(tmp_path):
    owner = looker(de.Variable(dim=2, name="users", initializer=3.0), shape=())
    version = de.export(owner, tmp_path, owner.look, ops="tensorflow", oov=1.0)
    assert served(version, ids=1).tolist() == [1.0, 1.0]
