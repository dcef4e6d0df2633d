"""A signature that computes a user's part once answers as the model does for each pair."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

USERS, ITEMS, HISTORY = 20, 40, 50
IDS = tf.TensorSpec([None], tf.int64)


class TwoTowers(keras.Model):
    """A user's history and an item, and a ranking network on top of both."""

    def __init__(self):
        super().__init__()
        self.users = de.layers.Embedding(8, name="users", optimizer="adam")
        self.seen = de.layers.Embedding(8, name="items", optimizer="adam", combiner="mean")
        self.tower = keras.layers.Dense(8, activation="relu")
        self.ranking = keras.Sequential(
            [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
        )

    def of_user(self, user, history):
        return self.tower(tf.concat([self.users(user), self.seen(history)], -1))

    def of_pair(self, user, item):
        row = de.embedding_lookup(self.seen.table, item)
        return self.ranking(tf.concat([user, row, user * row], -1))

    def call(self, inputs):
        return self.of_pair(self.of_user(inputs["user"], inputs["history"]), inputs["item"])


@pytest.fixture(scope="module")
def model():
    model, random = TwoTowers(), np.random.default_rng(0)
    pairs = {
        "user": random.integers(0, USERS, 256),
        "history": random.integers(0, ITEMS, [256, HISTORY]),
        "item": random.integers(0, ITEMS, 256),
    }
    model.compile("adam", "mse")
    model.fit(pairs, random.normal(size=256), epochs=2, verbose=0)
    return model


@pytest.fixture(scope="module", params=["de_core", "tensorflow"])
def signatures(model, request, tmp_path_factory):
    """The signatures of an export: the plain one and the one with shared inputs."""
    history = tf.TensorSpec([None, HISTORY], tf.int64)

    @tf.function(input_signature=[IDS, history, IDS])
    def plain(user, history, item):
        return model({"user": user, "history": history, "item": item}, training=False)

    rank = de.shared_signature(
        model.of_user, model.of_pair, {"user": IDS, "history": history}, {"item": IDS}
    )
    path = tmp_path_factory.mktemp(request.param)
    both = {"serving_default": plain, "rank": rank}
    version = de.export(model, path, signatures=both, ops=request.param, oov="zeros")
    loaded = tf.saved_model.load(version)
    return loaded, loaded.signatures


def request_of(users, counts):
    random = np.random.default_rng(1)
    shared = {
        "user": tf.constant(users, tf.int64),
        "history": tf.constant(random.integers(0, 2 * ITEMS, [len(users), HISTORY])),
    }
    item = tf.constant(random.integers(0, 2 * ITEMS, sum(counts)))
    return shared, item, tf.constant(np.cumsum([0, *counts]), tf.int64)


@pytest.mark.parametrize(
    ("users", "counts"), [([3], [500]), ([3, 99, 3], [4, 0, 7]), ([1], [0]), ([], [])]
)
def test_the_scores_are_those_of_the_plain_signature(signatures, users, counts):
    _, served = signatures
    shared, item, splits = request_of(users, counts)
    ranked = served["rank"](**shared, item=item, row_splits=splits)["output_0"]
    repeated = {name: tf.repeat(rows, counts, axis=0) for name, rows in shared.items()}
    expected = served["serving_default"](**repeated, item=item)["output_0"]
    assert ranked.shape == (sum(counts), 1)
    np.testing.assert_allclose(ranked, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([0, 4], "`row_splits` must begin with 0, never decrease"),  # items without a user
        ([1, 5], "`row_splits` must begin with 0, never decrease"),
        ([0, 6], "`row_splits` must begin with 0, never decrease"),
        ([0, 5, 3, 5], "`row_splits` must begin with 0, never decrease"),
        ([0, 2, 5], "`row_splits` must have one more element than a shared input has rows"),
        ([], "`row_splits` must begin with 0, never decrease"),
    ],
)
def test_wrong_row_splits_score_no_item_for_another_user(signatures, splits, message):
    _, served = signatures
    shared, item, _ = request_of([3], [5])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served["rank"](**shared, item=item, row_splits=tf.constant(splits, tf.int64))


def test_shared_inputs_can_be_ragged_and_results_dicts():
    table = de.Variable(dim=2, name="t", initializer="zeros")
    table.upsert([1, 2, 3], [[1.0, 0], [2, 0], [4, 0]])

    def total(history):
        segments = history.value_rowids()
        rows = de.embedding_lookup(table, history.values)
        return {"sum": tf.math.segment_sum(rows, segments), "history": history}

    def score(shared, item):
        rows = de.embedding_lookup(table, item)
        return {"score": tf.reduce_sum(shared["sum"] * rows, 1), "seen": shared["history"]}

    ragged = tf.RaggedTensorSpec([None, None], tf.int64)
    rank = de.shared_signature(total, score, {"history": ragged}, {"item": IDS})
    answer = rank(
        tf.constant([1, 2, 3], tf.int64),  # the values of [[1, 2], [3]]
        tf.constant([2, 1], tf.int64),
        tf.constant([1, 2, 3], tf.int64),
        tf.constant([0, 1, 3], tf.int64),
    )
    np.testing.assert_array_equal(answer["score"], [3, 8, 16])
    np.testing.assert_array_equal(answer["seen_row_lengths"], [2, 1, 1])


@pytest.mark.parametrize(
    ("shared_inputs", "inputs", "error", "message"),
    [
        ({}, {"item": IDS}, ValueError, "`shared_inputs` must not be empty"),
        ({"user": IDS}, {}, ValueError, "`inputs` must not be empty"),
        ({"user": [None]}, {"item": IDS}, TypeError, "`shared_inputs` must map names to"),
        ({"user": IDS}, [IDS], TypeError, "`inputs` must map names to"),
        ({"id": IDS}, {"id": IDS}, ValueError, "distinct names"),
        ({"id": IDS}, {"row_splits": IDS}, ValueError, "none the name 'row_splits'"),
    ],
)
def test_wrong_inputs_are_refused(shared_inputs, inputs, error, message):
    with pytest.raises(error, match=message):
        de.shared_signature(lambda **_: 0, lambda *_, **__: 0, shared_inputs, inputs)
