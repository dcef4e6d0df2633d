"""An exported model gives the same answers in another process, for known and unknown ids."""

import gc
import json
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.models import Subclassed, functional, looker, served, stats

# The reader imports TensorFlow and the op library, but none of the model's code.
ANSWERS = """
    import json, sys
    import tensorflow as tf
    import de_core.base.ops
    model = tf.saved_model.load(sys.argv[1])
    answers = {}
    for name, inputs in json.loads(sys.argv[2]).items():
        function = model.signatures[name]
        specs = function.structured_input_signature[1]
        tensors = {key: tf.constant(value, specs[key].dtype) for key, value in inputs.items()}
        answers[name] = {key: value.numpy().tolist() for key, value in function(**tensors).items()
                         if value.dtype != tf.string}
    print(json.dumps(answers))
"""


def trained(make, ratings):
    users, items, pleases = ratings
    keras.utils.set_random_seed(0)
    model = make()
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.05)), "binary_crossentropy")
    model.fit({"user": users, "item": items}, pleases, epochs=1, verbose=0)
    return model


SPECS = {name: tf.TensorSpec([None], tf.int64) for name in ("user", "item")}
IDS = {"user": [2**40, 2**40 + 5, -1, 2**62], "item": [1, 99, 2, -(2**63)]}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(functional, marks=pytest.mark.slow),
        lambda: functional(shards=2),
        pytest.param(Subclassed, marks=pytest.mark.slow),
    ],
)
def test_another_process_gives_the_same_answers(make, ratings, run_python, tmp_path):
    model = trained(make, ratings)
    path = de.export(model, tmp_path, inputs=SPECS if make is Subclassed else None)
    assert Path(path) == tmp_path / "1"
    asked = {
        "serving_default": IDS,
        "de_lookup/users": {"ids": IDS["user"]},
        "de_lookup/items": {"ids": IDS["item"]},
    }
    answers = json.loads(run_python(ANSWERS, path, json.dumps(asked)))
    tensors = {name: tf.constant(ids, tf.int64) for name, ids in IDS.items()}
    np.testing.assert_allclose(
        answers["serving_default"]["output_0"], model(tensors, training=False), atol=1e-6
    )
    tables = (
        {"users": ("user", model.users.table), "items": ("item", model.items)}
        if (make is Subclassed)
        else {name: (name[:-1], model.get_layer(name).table) for name in ("users", "items")}
    )
    for name, (ids, table) in tables.items():
        values, exists = table.lookup(tensors[ids], return_exists=True)
        np.testing.assert_array_equal(answers[f"de_lookup/{name}"]["embeddings"], values)
        np.testing.assert_array_equal(answers[f"de_lookup/{name}"]["found"], exists)
        assert 0 < np.mean(exists) < 1


def test_exporting_again_makes_the_next_version_and_leaves_the_old_one(ratings, tmp_path):
    model = trained(functional, ratings)
    first = tf.saved_model.load(de.export(model, tmp_path))
    table = model.get_layer("users").table
    ids = tf.constant([2**40], tf.int64)
    old = table.lookup(ids).numpy()
    table.upsert(ids, old + 1)
    second = tf.saved_model.load(de.export(model, tmp_path))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1", "2"]
    for _ in range(2):
        look = first.signatures["de_lookup/users"]
        np.testing.assert_array_equal(look(ids=ids)["embeddings"], old)
        if second is not None:
            look = second.signatures["de_lookup/users"]
            np.testing.assert_array_equal(look(ids=ids)["embeddings"], old + 1)
        second = None  # deleting the second export must not affect the first
        gc.collect()


def test_loading_one_version_twice_makes_two_of_it(ratings, tmp_path):
    path = de.export(trained(functional, ratings), tmp_path)
    first, second = tf.saved_model.load(path), tf.saved_model.load(path)
    ids = tf.constant([2**40], tf.int64)
    expected = first.signatures["de_lookup/users"](ids=ids)["embeddings"].numpy()
    del first
    gc.collect()
    result = second.signatures["de_lookup/users"](ids=ids)["embeddings"]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("entry_point", ["export", "publish", "save"])
def test_a_signature_alone_keeps_its_tables(tmp_path, entry_point):
    module = tf.Module()
    module.users, module.items = (de.Variable(dim=2, name=name) for name in ("users", "items"))
    module.items.upsert([7], [[1.0, 2.0]])
    specs = [tf.TensorSpec([None], tf.int64, name="ids")]
    signatures = {
        "serving_default": tf.function(lambda ids: module.users.lookup(ids), specs),
        "items": tf.function(lambda ids: module.items.lookup(ids), specs),
    }
    if entry_point == "save":
        path = str(tmp_path / "1")
        tf.saved_model.save(module, path, signatures=signatures)
    else:
        path = getattr(de, entry_point)(module, tmp_path, signatures)
    # The tables are opened and closed together. One table's signature keeps them.
    signature = tf.saved_model.load(path).signatures["items"]
    gc.collect()
    ids = tf.constant([7, 8], tf.int64)
    np.testing.assert_array_equal(signature(ids=ids)["output_0"], [[1.0, 2.0], [0.0, 0.0]])
    assert mapped(path)
    del signature
    gc.collect()
    assert not mapped(path)


def mapped(path):
    return str(path) in Path("/proc/self/maps").read_text("utf-8")


def test_stats_say_what_is_in_the_tables(ratings, tmp_path):
    model = trained(functional, ratings)
    path = Path(de.export(model, tmp_path))
    by_name = stats(path)
    assert set(by_name) == {"users", "items"}
    users = by_name["users"]
    assert (users["rows"], users["dim"]) == (40, 8)
    assert (users["key_dtype"], users["value_dtype"]) == ("int64", "float32")
    assert (path / "assets" / users["file"]).stat().st_size == users["bytes"]


def test_a_module_with_functions_of_its_own(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.words = de.Variable(tf.string, dim=2, initializer=1.0, name="scope/words")
            self.vocabulary = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([7], tf.int64)), -1
            )
            self.scale = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def __call__(self, word):
            number = tf.cast(self.vocabulary.lookup(word), tf.float32)
            return tf.reduce_sum(self.words.lookup(word), -1) * self.scale + number

    module = Module()
    module.words.upsert(["a"], [[3.0, 4.0]])
    default = tf.saved_model.load(de.export(module, tmp_path / "default"))
    words = tf.constant(["a", "b"])
    (result,) = default.signatures["serving_default"](word=words).values()
    np.testing.assert_array_equal(result, [21, 3])
    assert "de_lookup/scope/words" in default.signatures
    named = tf.saved_model.load(
        de.export(module, tmp_path / "named", signatures={"score": module.__call__})
    )
    assert set(named.signatures) == {"score", "de_lookup/scope/words", "de_stats"}


@pytest.mark.parametrize("name", ["same", "users_mht_by/country", "n" * 300])
def test_two_tables_of_one_name_are_told_apart(tmp_path, name):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.tables = [de.Variable(dim=1, name=name, initializer=value) for value in (1, 2)]

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def __call__(self, ids):
            return self.tables[0].lookup(ids) + 10 * self.tables[1].lookup(ids)

    loaded = tf.saved_model.load(de.export(Module(), tmp_path))
    ids = tf.constant([5], tf.int64)
    lookups = {each for each in loaded.signatures if each.startswith("de_lookup/")}
    assert lookups == {f"de_lookup/{name}", f"de_lookup/{name}_1"}
    for lookup, expected in [(f"de_lookup/{name}", 1), (f"de_lookup/{name}_1", 2)]:
        assert float(loaded.signatures[lookup](ids=ids)["embeddings"][0, 0]) == expected
    assert float(loaded.signatures["serving_default"](ids=ids)["output_0"][0, 0]) == 21.0


def test_the_save_function_of_tensorflow_includes_the_tables(ratings, tmp_path):
    model = trained(functional, ratings)
    tensors = {name: tf.constant(ids, tf.int64) for name, ids in IDS.items()}
    expected = model(tensors, training=False)
    for _ in range(2):
        module = tf.Module()
        module.model = model
        module.serve = tf.function(
            lambda user, item: model({"user": user, "item": item}, training=False),
            input_signature=[tf.TensorSpec([None], tf.int64)] * 2,
        )
        tf.saved_model.save(module, str(tmp_path / "saved"))
        loaded = tf.saved_model.load(str(tmp_path / "saved"))
        np.testing.assert_allclose(loaded.serve(**tensors), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"version": 0}, ValueError, "`version` must be an integer .* Received: version=0"),
        ({"version": 2**63}, ValueError, "from 1 to 9223372036854775807"),
        ({"version": "7"}, TypeError, "must be an integer"),
        ({"signatures": 3}, TypeError, "must be a tf.function"),
        ({"signatures": tf.function(lambda x: x)}, ValueError, "must say what it takes"),
        ({"inputs": "ids"}, TypeError, "`inputs` must be a tf.TensorSpec"),
        ({"signatures": 3, "inputs": SPECS}, ValueError, "so `signatures` must be None"),
    ],
)
def test_bad_arguments_leave_nothing_behind(arguments, error, message, tmp_path):
    with pytest.raises(error, match=message):
        de.export(functional(), tmp_path / "new", **arguments)
    assert not any(tmp_path.rglob("saved_model.pb"))


@pytest.mark.parametrize("entry_point", [de.export, de.publish])
def test_only_directories_of_this_machine_that_tensorflow_can_read(
    entry_point, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be a directory of this machine"):
        entry_point(functional(), "ram://models")
    with pytest.raises(ValueError, match="treats them as patterns"):
        entry_point(functional(), tmp_path / "lr=[0.1]")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_version_is_kept(ratings, tmp_path):
    model = trained(functional, ratings)
    path = de.export(model, tmp_path, version=np.int64(7))
    with pytest.raises(FileExistsError, match="must not exist yet"):
        de.export(model, tmp_path, version=7)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["7"]
    assert Path(de.export(model, tmp_path)).name == "8"
    assert Path(path, "saved_model.pb").exists()
    (tmp_path / str(2**63 - 1)).mkdir()
    with pytest.raises(ValueError, match="from 1 to 9223372036854775807"):
        de.export(model, tmp_path)


def test_an_export_leaves_no_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    de.export(functional(shards=2), tmp_path / "models")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "models"]


def test_a_model_without_a_table(tmp_path):
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="must use a dynamic table"):
        de.export(model, tmp_path)


@pytest.mark.parametrize("ops", ["de_core", "tensorflow"])
def test_the_log_does_not_name_the_folder_that_was_renamed(ops, tmp_path, caplog):
    model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2, name="t")])
    with caplog.at_level("INFO", tf.get_logger().name):
        de.export(model, tmp_path, ops=ops, oov="zeros")
        tf.saved_model.save(tf.Module(), tmp_path / "plain")
    written = [each for each in caplog.messages if "Assets written to" in each]
    assert [str(tmp_path / "plain") in each for each in written] == [True]


def test_rows_of_unknown_ids_differ_between_exports_of_a_process(tmp_path):
    table = de.Variable(dim=64, name="users")
    owner = looker(table)
    for number in (1.0, 2.0):
        row = np.zeros(64, np.float32)
        row[30] = number  # in the middle of a long attribute
        version = de.export(owner, tmp_path, owner.look, oov=row)
        np.testing.assert_array_equal(served(version, ids=[1]), [row])
