"""Exports models with the real `tfra` wheel and records their answers.

    TF_USE_LEGACY_KERAS=1 python make.py FOLDER [MODEL ...]

The program needs the wheel and tf_keras. It exports each model below FOLDER. Then another process
loads it as a model server does, in a session, and writes `answers.json` beside it: for each
signature inputs and outputs, and for each table its rows.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons as tfra

de = tfra.dynamic_embedding
v1 = tf.compat.v1
OPTIONS = tf.saved_model.SaveOptions(namespace_whitelist=["TFRA"])
#: Seven ids; the last two have no row.
IDS = [3, 1, 0, 3, 19, 1000, -5]


def ranking_model(*, shards: int):
    """Trains two towers with Adam. The slots are tables too."""
    tf.keras.utils.set_random_seed(1)
    inputs, rows = [], []
    for name, count in (("user", 1), ("movie", shards)):
        inputs.append(tf.keras.Input([1], dtype=tf.int64, name=name))
        layer = de.keras.layers.Embedding(
            4,
            name=f"{name}s",
            initializer=tf.keras.initializers.Constant(0.25),
            devices=["/CPU:0"] * count,
        )
        rows.append(layer(inputs[-1]))
    joined = tf.keras.layers.Flatten()(tf.concat(rows, -1))
    score = tf.keras.layers.Dense(1, activation="sigmoid", name="score")(joined)
    model = tf.keras.Model(inputs, score)
    model.compile(
        de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(0.1)), "binary_crossentropy"
    )
    random = np.random.default_rng(0)
    ids = {"user": random.integers(0, 20, (64, 1)), "movie": random.integers(0, 30, (64, 1))}
    model.fit(ids, random.integers(0, 2, 64).astype("float32"), 16, 2, verbose=0)
    return model


RANKING = {"user": [[i] for i in IDS], "movie": [[i] for i in reversed(IDS)]}


def keras_save(path: str):
    ranking_model(shards=2).save(path, options=OPTIONS)
    return {"serving_default": RANKING}


def keras_de_save_model(path: str):
    de.keras.models.de_save_model(ranking_model(shards=1), path)
    return {"serving_default": RANKING}


class Rows(tf.Module):
    """A table, and a vocabulary of TensorFlow beside it."""

    def __init__(self, **arguments):
        super().__init__()
        self.table = de.get_variable(**arguments)
        spec = tf.TensorSpec([None], self.table.key_dtype, name="ids")
        self.rows = tf.function(lambda ids: {"embeddings": self.table.lookup(ids)}, [spec])
        self.found = tf.function(self._found, [spec])
        kinds = tf.constant([0, 1, 2], tf.int64), tf.constant(["none", "some", "many"])
        self.kinds = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(*kinds), "unknown"
        )

    def _found(self, ids):
        rows, exists = self.table.lookup(ids, return_exists=True)
        count = tf.reduce_sum(tf.cast(exists, tf.int64))
        return {"embeddings": rows, "exists": exists, "kind": self.kinds.lookup(count)}

    def save(self, path: str):
        tf.saved_model.save(
            self, path, {"serving_default": self.rows, "found": self.found}, OPTIONS
        )


def module(path: str):
    rows = Rows(name="emb", dim=3, initializer=-1.0, devices=["/CPU:0"] * 2)
    keys = tf.range(20, dtype=tf.int64)
    rows.table.upsert(keys, tf.random.stateless_normal([20, 3], [1, 2]))
    rows.save(path)
    return {"serving_default": {"ids": IDS}, "found": {"ids": [4, -8, 1 << 40, 5]}}


def module_of_strings(path: str):
    rows = Rows(name="words", dim=2, initializer=0.5, key_dtype=tf.string)
    rows.table.upsert(tf.constant(["a", "", "ü"]), [[1.0, 2.0], [3.0, 4.0], [0.1, 6.0]])
    rows.save(path)
    return {"serving_default": {"ids": ["ü", "b", "", "a"]}, "found": {"ids": ["", "c"]}}


def graph_variables(devices: int, **arguments):
    table = de.get_variable(
        "items", dim=4, devices=["/CPU:0"] * devices, initializer=-0.5, **arguments
    )
    weights = v1.get_variable("w", (4, 1), initializer=v1.constant_initializer([0.5, -1, 2, 0.1]))
    keys = tf.range(20, dtype=tf.int64)
    return table, weights, table.upsert(keys, tf.random.stateless_normal([20, 4], [3, 4]))


def simple_save(path: str, **arguments):
    with tf.Graph().as_default(), v1.Session() as session:
        table, weights, upsert = graph_variables(3, **arguments)
        ids = v1.placeholder(tf.int64, [None], name="ids")
        rows = de.embedding_lookup(table, ids, name="look")
        score = tf.sigmoid(rows @ weights)
        session.run(v1.global_variables_initializer())
        session.run(upsert)
        v1.saved_model.simple_save(
            session, path, {"ids": ids}, {"embeddings": rows, "score": score}
        )
    return {"serving_default": {"ids": IDS}}


def simple_save_files(path: str):
    """Leaves the rows in files. Only tfra's own Saver restores them, so there are no answers."""
    creator = de.CuckooHashTableCreator(saver=de.FileSystemSaver())
    simple_save(path, kv_creator=creator)
    return {}


def builder(path: str):
    with tf.Graph().as_default(), v1.Session() as session:
        table, weights, upsert = graph_variables(1)
        ids = v1.sparse_placeholder(tf.int64, [None, None], name="ids")
        rows = de.safe_embedding_lookup_sparse(table, ids, combiner="mean", name="look")
        inputs = {"values": ids.values, "indices": ids.indices, "shape": ids.dense_shape}
        signature = v1.saved_model.signature_def_utils.predict_signature_def(
            inputs, {"score": tf.sigmoid(rows @ weights)}
        )
        session.run(v1.global_variables_initializer())
        session.run(upsert)
        made = v1.saved_model.Builder(path)
        made.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        made.save()
    indices = [[0, 0], [0, 1], [2, 0], [2, 1], [2, 2], [3, 0]]
    return {"serving_default": {"values": IDS[:6], "indices": indices, "shape": [4, 3]}}


MODELS = (
    keras_save,
    keras_de_save_model,
    module,
    module_of_strings,
    simple_save,
    simple_save_files,
    builder,
)


def answer(path: Path) -> None:
    """Loads a model in a session, runs the requests in `answers.json` and adds the answers."""
    file = path / "answers.json"
    requests = json.loads(file.read_text())
    answers: dict = {"signatures": {}, "tables": {}}
    with tf.Graph().as_default() as graph, v1.Session() as session:
        signatures = v1.saved_model.load(session, ["serve"], str(path)).signature_def
        for name, inputs in requests.items():
            feeds = {signatures[name].inputs[key].name: each for key, each in inputs.items()}
            fetches = {key: each.name for key, each in signatures[name].outputs.items()}
            outputs = {key: plain(each) for key, each in session.run(fetches, feeds).items()}
            answers["signatures"][name] = {"inputs": inputs, "outputs": outputs}
        for node in graph.get_operations():
            if node.type == "TFRA>CuckooHashTableExport":
                keys, rows = session.run(node.outputs)
                rows = sorted(zip(plain(keys), plain(rows), strict=True))
                answers["tables"][node.inputs[0].op.name] = rows
    file.write_text(json.dumps(answers) + "\n")


def plain(value):
    """Returns an array as lists. JSON keeps every bit of a number."""
    array = np.asarray(value, object if isinstance(value, bytes) else None)
    if array.dtype == object:
        return np.vectorize(lambda each: each.decode(), otypes=[object])(array).tolist()
    return array.tolist()


def main() -> None:
    folder = Path(sys.argv[1])
    for make in MODELS:
        if make.__name__ not in (sys.argv[2:] or [make.__name__]):
            continue
        path = folder / make.__name__
        requests = make(str(path))
        (path / "answers.json").write_text(json.dumps(requests))
        if requests:
            subprocess.run([sys.executable, __file__, "--answer", path], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        answer(Path(sys.argv[2]))
    else:
        main()
