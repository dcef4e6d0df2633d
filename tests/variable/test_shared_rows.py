"""Tests the trained rows that ids without a row share (`num_oov_indices`)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

SHARED, DIM = 3, 2
START = np.float32([0.5, -1.0])
UNSEEN = np.arange(900, 912)


class Oracle:
    """The same table as dense variables and a dict, trained by gradient descent.

    Args:
        rate: The learning rate.
        min_count: The occurrence at which an id gets a row.
        late: Whether a new row is a copy of its shared row after the step, not before.
    """

    def __init__(self, rate, min_count, late):
        self.rate, self.min_count, self.late = rate, min_count, late
        self.rows, self.seen = {}, {}
        self.shared = np.tile(START, [SHARED, 1])

    def read(self, ids):
        return np.array([self.rows.get(id_, self.shared[bucket(id_)]) for id_ in ids])

    def train(self, ids, gradients):
        before, known = self.shared.copy(), set(self.rows)
        for id_, gradient in zip(ids, gradients, strict=True):
            target = self.rows[id_] if id_ in known else self.shared[bucket(id_)]
            target -= self.rate * gradient
        for id_ in set(ids) - known:
            self.seen[id_] = self.seen.get(id_, 0) + 1
            if self.seen[id_] >= self.min_count:
                self.rows[id_] = (self.shared if self.late else before)[bucket(id_)].copy()


def bucket(id_):
    return int(de.default_partition_fn(tf.constant([id_], tf.int64), SHARED)[0])


def variable(**arguments):
    arguments = {"admission": de.AdmissionCount(2), "initializer": START, **arguments}
    return de.Variable(dim=DIM, name="users", num_oov_indices=SHARED, **arguments)


def trainer(users, optimizer, traced=True):
    def step(ids, gradients):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(users.lookup(ids) * gradients)
        variables = users.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return tf.function(step, reduce_retracing=True) if traced else step


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("shards", "min_count", "traced"), [(1, 2, True), (2, 1, False)])
def test_training_is_that_of_dense_rows_and_a_dict(own, shards, min_count, traced):
    optimizer = keras.optimizers.SGD(0.5)
    users = variable(
        devices=["/CPU:0"] * shards,
        admission=de.AdmissionCount(min_count),
        optimizer="sgd" if own else None,
    )
    if own:
        users.optimizer.learning_rate = users.shared_rows.optimizer.learning_rate = 0.5
    else:
        optimizer = de.DynamicEmbeddingOptimizer(optimizer)
    # Keras hands out the gradients of tables that have their own optimizers in reverse order.
    step, oracle = trainer(users, optimizer, traced), Oracle(0.5, min_count, late=own)
    rng = np.random.default_rng(0)
    for _ in range(12):
        ids = rng.integers(0, 20, size=6)
        gradients = rng.normal(size=[6, DIM]).astype(np.float32)
        step(tf.constant(ids), tf.constant(gradients))
        oracle.train(ids.tolist(), gradients)
        every = [*range(20), *UNSEEN]
        np.testing.assert_allclose(users.lookup(every), oracle.read(every), atol=1e-6)
        assert int(users.size()) == len(oracle.rows)
    np.testing.assert_allclose(users.shared_rows.lookup([0, 1, 2]), oracle.shared, atol=1e-6)
    assert not np.allclose(oracle.shared, START)


class OwnAdam(keras.optimizers.Adam):
    """An optimizer that has no rule inside the tables: it works on gathered rows."""


@pytest.mark.filterwarnings("ignore:OwnAdam has no rule")
@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, OwnAdam])
def test_a_new_row_has_new_slots(optimizer):
    users = variable(admission=None)
    trained = de.DynamicEmbeddingOptimizer(optimizer())
    step = trainer(users, trained)
    for _ in range(3):
        step(tf.constant([7], tf.int64), tf.ones([1, DIM]))
    names = ("users/m", "users/momentum")
    (mean,) = (each for each in de.get_slot_variables(trained) if each.name in names)
    # The first step trained the shared row. Each of the other two trained the row of id 7.
    np.testing.assert_allclose(mean.lookup([7]), [[0.19] * DIM], rtol=1e-5)


def test_other_lookups_read_and_train_the_shared_rows_too():
    users = variable()
    ids = tf.ragged.constant([[7, 8], [9]], dtype=tf.int64)
    with tf.GradientTape() as tape:
        pooled = de.embedding_lookup_sparse(users, ids, None, combiner="sum")
        unique = de.embedding_lookup_unique(users, [7, 7], max_norm=1.0)
        loss = tf.reduce_sum(pooled) + 0 * tf.reduce_sum(unique)
    gradient = tape.gradient(loss, users.trainable_variables)[1]
    summed = np.zeros(SHARED)
    np.add.at(summed, gradient.indices.numpy(), gradient.values.numpy()[:, 0])
    np.testing.assert_allclose(summed, np.bincount([bucket(i) for i in (7, 8, 9)], minlength=3))
    np.testing.assert_allclose(pooled, [2 * START, START])
    np.testing.assert_allclose(unique, np.tile(START / np.linalg.norm(START), [2, 1]), rtol=1e-6)
    np.testing.assert_array_equal(users.find_or_insert([1, 1]), [START, START])
    assert int(users.size()) == 1  # the second occurrence of the id


def model_of(**arguments):
    layer = de.layers.Embedding(
        DIM, name="users", num_oov_indices=SHARED, initializer=START, combiner="sum", **arguments
    )
    model = keras.Sequential([keras.Input([None], dtype="int64"), layer])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.5)), "mse")
    model.fit(np.arange(40).reshape(-1, 2), np.zeros([20, DIM]), batch_size=4, verbose=0)
    return model


@pytest.mark.parametrize("oov", ["initial", "shared", "zeros", 2.0, "error"])
def test_an_export_reads_unknown_ids_as_its_policy_says(oov, tmp_path):
    model = model_of()
    users = model.layers[0].table
    users.shared_rows.upsert(range(SHARED), tf.reshape(tf.range(2.0 * SHARED), [SHARED, DIM]))
    expected = users.lookup(UNSEEN).numpy()
    assert len(np.unique(expected, axis=0)) == SHARED
    expected = {"zeros": 0 * expected, 2.0: 0 * expected + 2}.get(oov, expected)
    for write in (de.export, de.publish):
        version = write(model, tmp_path / write.__name__, oov=oov)
        loaded = tf.saved_model.load(version).signatures
        ids = tf.constant(UNSEEN)
        if oov == "error":
            with pytest.raises(tf.errors.NotFoundError, match="key=900, table=users"):
                loaded["de_lookup/users"](ids=ids)
            continue
        found = loaded["de_lookup/users"](ids=ids)
        np.testing.assert_array_equal(found["embeddings"], expected)
        assert not found["found"].numpy().any()
        (scores,) = loaded["serving_default"](inputs=ids[:, None]).values()
        np.testing.assert_array_equal(scores, expected)
    users.shared_rows.upsert([0, 1, 2], tf.ones([SHARED, DIM]))
    delta = de.publish(model, tmp_path / "publish", oov=oov, full_part=10)
    assert delta.report["kind"] == "delta"
    if oov in ("initial", "shared"):
        found = tf.saved_model.load(delta).signatures["de_lookup/users"](ids=tf.constant(UNSEEN))
        np.testing.assert_array_equal(found["embeddings"], np.ones([len(UNSEEN), DIM]))


def test_shared_rows_are_saved_with_the_table(tmp_path):
    model = model_of()
    expected = model(UNSEEN[:, None])
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(reloaded(UNSEEN[:, None]), expected)
    de.checkpoint.save(model.layers[0].table, tmp_path / "checkpoint")
    other = keras.models.clone_model(model)
    de.checkpoint.restore(other.layers[0].table, tmp_path / "checkpoint")
    np.testing.assert_array_equal(other(UNSEEN[:, None]), expected)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_oov_indices": -1}, ValueError, "num_oov_indices=-1"),
        ({"num_oov_indices": 1.5}, TypeError, "must be an integer"),
        ({"num_oov_indices": 1, "value_dtype": tf.int32}, TypeError, "value_dtype='int32'"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        de.Variable(dim=DIM, **arguments)


def test_where_there_can_be_no_shared_rows():
    existing = de.get_variable("existing", dim=DIM, num_oov_indices=2)
    with pytest.raises(ValueError, match="the same `num_oov_indices`"):
        de.get_variable("existing", dim=DIM, num_oov_indices=3)
    assert de.get_variable("existing", dim=DIM) is existing
    with tf.Graph().as_default(), pytest.raises(NotImplementedError, match="in eager mode"):
        de.Variable(dim=DIM, num_oov_indices=1)


def test_exports_that_cannot_have_shared_rows(tmp_path):
    with pytest.raises(ValueError, match="no table may have shared rows"):
        de.export(model_of(), tmp_path, ops="tensorflow", oov="zeros")
    plain = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2, name="t")])
    with pytest.raises(ValueError, match="made with `num_oov_indices`"):
        de.export(plain, tmp_path, oov="shared")
