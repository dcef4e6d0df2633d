"""Writes the SavedModels of the gateway's tests: `python make_models.py FOLDER`.

It is a separate process, so that the test process never imports TensorFlow. The models use only
plain TensorFlow; their lookups compare ids with a few constant keys.
"""

import json
import sys
from pathlib import Path

import tensorflow as tf

USERS = {7: 0.5, 2**53 + 1: 1.5, -(2**63): 2.5, 0: 3.5}
ITEMS = {b"lamp": 1.0, b"\xff\x00": 2.0}
DIM = 4


class Ranker(tf.Module):
    """A model whose answers reveal its version."""

    def __init__(self, version):
        super().__init__()
        self._version = version
        self._weights = tf.Variable([[1.0, 10.0], [100.0, 1000.0]])

    def _find(self, ids, rows):
        keys = tf.constant(list(rows), ids.dtype)
        first = tf.constant(list(rows.values())) * self._version
        values = first[:, None] + tf.range(float(DIM))
        match = ids[:, None] == keys[None, :]
        found = tf.reduce_any(match, axis=1)
        unknown = tf.fill([tf.size(ids), DIM], -1.0)
        known = tf.matmul(tf.cast(match, tf.float32), values)
        return {"embeddings": tf.where(found[:, None], known, unknown), "found": found}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, "user"),
            tf.TensorSpec([None], tf.string, "item"),
        ]
    )
    def score(self, user, item):
        length = tf.cast(tf.strings.length(item), tf.float32)
        return {
            "score": tf.cast(user, tf.float32) / 2 + length,
            "user": user,
            "version": tf.fill(tf.shape(user), self._version),
        }

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, "x")])
    def half_plus_two(self, x):
        return {"y": x / 2 + 2}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "x")])
    def mix(self, x):
        return {"y": tf.matmul(x, self._weights)}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "rounds")])
    def slow(self, rounds):
        start = tf.eye(256)
        end, _ = tf.while_loop(
            lambda _, i: i < rounds, lambda m, i: (tf.matmul(m, start), i + 1), (start, 0)
        )
        return {"version": tf.cast(tf.reduce_max(end), tf.int32) * self._version}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
    def find_user(self, ids):
        return self._find(ids, USERS)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "ids")])
    def find_item(self, ids):
        return self._find(ids, ITEMS)

    @tf.function(input_signature=[])
    def stats(self):
        tables = [
            {"table": "user", "rows": len(USERS), "dim": DIM, "key_dtype": "int64"},
            {"table": "item", "rows": len(ITEMS), "dim": DIM, "key_dtype": "string"},
        ]
        return {"stats": tf.constant(json.dumps(tables))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def classify(self, inputs):
        ages = self._ages(inputs)
        labels = tf.tile(tf.constant([["young", "old"]]), [tf.size(inputs), 1])
        return {"classes": labels, "scores": tf.stack([100 - ages, ages], axis=1) / 100}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "inputs")])
    def regress(self, inputs):
        return {"outputs": self._ages(inputs)[:, None] / 2}

    def _ages(self, inputs):
        parsed = tf.io.parse_example(inputs, {"age": tf.io.FixedLenFeature([], tf.float32)})
        return parsed["age"]


class Ranking(tf.Module):
    """The signatures of the ranking example. The rows are functions of an id's characters."""

    def _rows(self, ids, dim):
        number = tf.cast(tf.strings.to_hash_bucket_fast(ids, 97), tf.float32) / 97
        return number[..., None] * tf.range(1.0, dim + 1.0) / dim

    def _find(self, ids, dim):
        known = tf.strings.regex_full_match(ids, "[ui][0-9]+|__K[UI]__")
        return {"embeddings": self._rows(ids, dim), "found": known}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "item_id"),
            tf.TensorSpec([None], tf.string, "user_id"),
        ]
    )
    def serve(self, item_id, user_id):
        item = self._rows(item_id, 17)
        likeness = self._rows(user_id, 16) * item[:, :-1]
        return {"output_0": tf.sigmoid(tf.reduce_sum(likeness, -1) + item[:, -1])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "ids")])
    def find_user(self, ids):
        return self._find(ids, 16)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "ids")])
    def find_item(self, ids):
        return self._find(ids, 17)

    @tf.function(input_signature=[])
    def stats(self):
        return {"stats": tf.constant("[]")}


def save(model, path, signatures):
    tables = {"de_lookup/user": model.find_user, "de_lookup/item": model.find_item}
    tf.saved_model.save(model, str(path), {**signatures, **tables, "de_stats": model.stats})


def write(version, path):
    model = Ranker(version)
    signatures = {
        "serving_default": model.score,
        "half_plus_two": model.half_plus_two,
        "mix": model.mix,
        "slow": model.slow,
        "old_or_young": model.classify,
        "half_the_age": model.regress,
    }
    save(model, path, signatures)
    if version != 3:  # version 3 stays as TensorFlow 2 saves it: every signature is for predict
        _set_method(path, "old_or_young", "tensorflow/serving/classify")
        _set_method(path, "half_the_age", "tensorflow/serving/regress")


def _set_method(path, signature, method):
    """Changes a signature's method name in the file. TensorFlow 2 itself always writes predict."""
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    file = path / "saved_model.pb"
    message.ParseFromString(file.read_bytes())
    message.meta_graphs[0].signature_def[signature].method_name = method
    file.write_bytes(message.SerializeToString())


if __name__ == "__main__":
    for number in (1, 2, 3):
        write(number, Path(sys.argv[1]) / str(number))
    ranking = Ranking()
    save(ranking, Path(sys.argv[1]) / "ranking", {"serving_default": ranking.serve})
