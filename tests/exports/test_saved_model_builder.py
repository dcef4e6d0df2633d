"""A SavedModel of TensorFlow 1's builder reads its tables into memory when it is loaded."""

import gc
import shutil

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

IDS = np.arange(2000)
ASKED = [1, 5, 1999, 10**12]


class Trainer:
    """Trains a table in a session and saves its graph."""

    def __init__(self, tables, key_dtype=tf.int64):
        self.graph = tf.Graph()
        self.session = tf.compat.v1.Session(graph=self.graph)
        self.asked = ASKED if key_dtype == tf.int64 else [str(each) for each in ASKED]
        with self.graph.as_default():
            devices = ["/CPU:0"] * tables
            table = de.get_variable(
                "users", dim=2, key_dtype=key_dtype, initializer=0.5, devices=devices
            )
            self.ids = tf.compat.v1.placeholder(key_dtype, [None], name="ids")
            self.rows = de.embedding_lookup(table, self.ids)
            self.size = table.size()
            adam = de.DynamicEmbeddingOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))
            self.step = adam.minimize(tf.reduce_sum(self.rows))
            self.session.run(tf.compat.v1.global_variables_initializer())

    def train(self, ids=IDS):
        if self.ids.dtype == tf.string:
            ids = [str(each) for each in ids]
        self.session.run(self.step, {self.ids: ids})

    def answers(self):
        return self.session.run(self.rows, {self.ids: self.asked})

    def save(self, path, saver=None):
        with self.graph.as_default():
            signature = tf.compat.v1.saved_model.predict_signature_def(
                {"ids": self.ids}, {"rows": self.rows}
            )
            builder = tf.compat.v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(
                self.session, ["serve"], {"serving_default": signature}, saver=saver
            )
            builder.save()
        return path


class Loaded:
    """Loads a trainer's model in a new session."""

    def __init__(self, path):
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            meta = tf.compat.v1.saved_model.load(self.session, ["serve"], str(path))
        signature = meta.signature_def["serving_default"]
        self.ids, self.rows = signature.inputs["ids"].name, signature.outputs["rows"].name

    def answers(self, ids=ASKED):
        return self.session.run(self.rows, {self.ids: ids})


@pytest.mark.parametrize(
    ("tables", "key_dtype", "own_saver"),
    [(1, tf.int64, False), (3, tf.int64, False), (1, tf.string, False), (1, tf.int64, True)],
)
def test_a_loaded_model_answers_like_the_session(tmp_path, tables, key_dtype, own_saver):
    trainer = Trainer(tables, key_dtype)
    trainer.train()
    with trainer.graph.as_default():
        saver = tf.compat.v1.train.Saver() if own_saver else None
    path = trainer.save(tmp_path / "saved", saver)
    loaded = Loaded(path)
    shutil.rmtree(path)  # the rows are in memory
    np.testing.assert_array_equal(loaded.answers(trainer.asked), trainer.answers())
    assert loaded.session.run(trainer.size.name) == len(IDS)


def test_versions_of_one_graph_in_one_process_do_not_interfere(tmp_path):
    trainer = Trainer(1)
    paths, expected = [], []
    for version in "123":
        trainer.train()
        paths.append(trainer.save(tmp_path / version))
        expected.append(trainer.answers())
    loaded = [Loaded(path) for path in paths]
    functions = [tf.saved_model.load(str(path)).signatures for path in paths]
    for number in (0, 1, 2, 0):
        np.testing.assert_array_equal(loaded[number].answers(), expected[number])
        answer = functions[number]["serving_default"](ids=tf.constant(ASKED, tf.int64))
        np.testing.assert_array_equal(answer["rows"], expected[number])
    loaded[0].session.close()
    shutil.rmtree(paths[1])
    np.testing.assert_array_equal(loaded[1].answers(), expected[1])


@pytest.mark.parametrize("tables", [1, 3])
def test_training_goes_on_in_a_loaded_model(tmp_path, tables):
    trainer = Trainer(tables)
    trainer.train()
    path = trainer.save(tmp_path / "saved")
    loaded = Loaded(path)
    before = trainer.answers()
    for _ in range(2):  # Adam's slots are saved too
        trainer.train(IDS[1::2])
        loaded.session.run(trainer.step.name, {loaded.ids: IDS[1::2]})
        np.testing.assert_array_equal(loaded.answers(), trainer.answers())
    assert np.any(trainer.answers() != before)
    np.testing.assert_array_equal(Loaded(path).answers(), before)


@pytest.mark.parametrize("damage", ["cut", "header", "block", "missing"])
def test_a_damaged_file_fails_the_load_by_its_name(tmp_path, damage):
    trainer = Trainer(1)
    trainer.train()
    path = trainer.save(tmp_path / "saved")
    (file,) = path.glob("variables/*.data-r*")
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:-1])
    else:
        content[0 if damage == "header" else len(content) // 2] ^= 1
        file.write_bytes(content)
    with pytest.raises(tf.errors.OpError, match=file.name):
        Loaded(path)


def test_simple_save_includes_the_tables(tmp_path):
    trainer = Trainer(1)
    trainer.train()
    with trainer.graph.as_default():
        tf.compat.v1.saved_model.simple_save(
            trainer.session, str(tmp_path / "saved"), {"ids": trainer.ids}, {"rows": trainer.rows}
        )
    expected = trainer.answers()
    trainer.session.close()
    del trainer
    gc.collect()
    np.testing.assert_array_equal(Loaded(tmp_path / "saved").answers(), expected)
