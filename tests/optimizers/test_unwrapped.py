"""An unwrapped optimizer fails loudly at its first step, whatever its kind and settings."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de

v1 = tf.compat.v1
WRAP = (
    r"must have an optimizer of its own.*Make the table with optimizer=\"adam\".*"
    r"use de\.DynamicEmbeddingOptimizer\(optimizer\)"
)
# TensorFlow's errors for an id without a row, and for a gradient that it cannot make dense.
NO_ROW = r"is not in \[0, 0\)|in indices is out of range|on a sparse variable"
NOT_DENSE = (
    r"num_segments == -1 must not be negative|must be non-negative but is -1|must stay sparse|"
    r"dimensions must be >= 0|Dimension -1 must be|Cannot convert a partially known TensorShape"
)
IDS = np.array([3, 5, 3], np.int64)


def optimizers_of(module, base):
    no_optimizers = ("LossScaleOptimizer", "MultiOptimizer", "SyncReplicasOptimizer")
    found = {
        getattr(module, name)
        for name in dir(module)
        if name not in no_optimizers and isinstance(getattr(module, name), type)
    }
    found = {each for each in found if issubclass(each, base) and each is not base}
    return sorted(found, key=lambda of: of.__name__)


KERAS_3 = optimizers_of(keras.optimizers, keras.optimizers.Optimizer)
TF_KERAS = optimizers_of(tf_keras.optimizers, tf_keras.optimizers.Optimizer)
LEGACY = optimizers_of(tf_keras.optimizers.legacy, tf_keras.optimizers.legacy.Optimizer)
TF_1 = optimizers_of(v1.train, v1.train.Optimizer)
CASES = [
    *((make, mode) for make in [*KERAS_3, *TF_KERAS, *LEGACY] for mode in ("eager", "function")),
    *((make, mode) for make in TF_1 for mode in ("eager", "function", "session")),
]


def made(make):
    if make is v1.train.AdagradDAOptimizer:
        return make(0.1, tf.Variable(0, dtype=tf.int64))
    return make(0.1, 0.9) if make is v1.train.MomentumOptimizer else make(0.1)


def in_a_session(make, _):
    with tf.Graph().as_default(), v1.Session() as session:
        table = de.get_variable("users", dim=2)
        train = made(make).minimize(tf.reduce_sum(de.embedding_lookup(table, IDS)))
        session.run(v1.global_variables_initializer())
        session.run(train)


def a_step(make, mode):
    table = de.Variable(dim=2, name="users")
    anchor = table.trainable_variables[0]
    anchor = anchor if make in KERAS_3 else anchor.value
    optimizer = made(make)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.embedding_lookup(table, IDS))
        optimizer.apply_gradients([(tape.gradient(loss, anchor), anchor)])

    (tf.function(step) if mode == "function" else step)()


def test_the_cases_are_all_optimizers():
    assert [len(each) for each in (KERAS_3, TF_KERAS, LEGACY, TF_1)] >= [12, 11, 8, 9]


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("make", "mode"), CASES, ids=[f"{of.__module__}.{of.__name__}-{mode}" for of, mode in CASES]
)
def test_it_fails(make, mode):
    errors = (RuntimeError, ValueError, tf.errors.InvalidArgumentError)
    run = in_a_session if mode == "session" else a_step
    with pytest.raises(errors, match=f"{WRAP}|{NO_ROW}|{NOT_DENSE}"):
        run(make, mode)


def fit(optimizer, **settings):
    layer = de.layers.Embedding(2)
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **settings)
    model.fit(IDS, np.zeros([3, 1], np.float32), verbose=0)


@pytest.mark.each_choice
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"use_ema": True}, {"clipnorm": 1.0}, {"global_clipnorm": 1.0}], ids=str
)
def test_a_model_of_keras_says_what_to_do(settings, run_eagerly):
    with pytest.raises(RuntimeError, match=WRAP):
        fit(keras.optimizers.Adam(**settings), run_eagerly=run_eagerly)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(gradient_accumulation_steps=2),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    ],
    ids=["accumulation", "loss scale"],
)
def test_tensorflow_makes_no_gradient_dense(make, run_eagerly):
    """Keras does arithmetic with the gradient before it hands the gradient to the anchor."""
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=NOT_DENSE):
        fit(make(), run_eagerly=run_eagerly)


class Scores(tf.Module):
    def __init__(self):
        super().__init__()
        self.table, self.factors = de.Variable(dim=2, name="t"), tf.Variable([1.0, 1.0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def looked_up(self, ids):
        return tf.reduce_sum(de.embedding_lookup(self.table, ids) * self.factors)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def pooled(self, ids):
        ragged = tf.RaggedTensor.from_row_lengths(ids, [tf.size(ids)])
        return tf.reduce_sum(de.embedding_lookup_sparse(self.table, ragged, None) * self.factors)


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores")
    tf.saved_model.save(Scores(), str(path))
    return str(path)


@pytest.mark.each_choice
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("method", ["looked_up", "pooled"])
@pytest.mark.parametrize(
    "make",
    [
        v1.train.GradientDescentOptimizer,
        *(of.SGD for of in (tf_keras.optimizers, tf_keras.optimizers.legacy)),
        *(of.Adam for of in (tf_keras.optimizers, tf_keras.optimizers.legacy)),
    ],
)
def test_optimizers_on_a_loaded_model_raise(make, method, wrapped, saved_model):
    loaded = tf.saved_model.load(saved_model)
    variables = [loaded.table.anchor, loaded.factors]
    optimizer = de.DynamicEmbeddingOptimizer(make(0.1)) if wrapped else make(0.1)
    with tf.GradientTape() as tape:
        loss = tf.function(getattr(loaded, method))(IDS)
    gradients = tape.gradient(loss, variables)
    error = (RuntimeError, tf.errors.InvalidArgumentError)
    message = "tables of a SavedModel are read-only: train the model" if wrapped else NO_ROW
    with pytest.raises(error, match=message):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
    assert loaded.factors.numpy().tolist() == [1.0, 1.0]


def test_an_anchor_can_be_saved_and_described():
    with tf.Graph().as_default():
        anchor = de.get_variable("t", dim=2).trainable_variables[0]
        assert isinstance(anchor, tf.Variable)
        assert "t/anchor" in repr(anchor)
        assert anchor.to_proto().variable_name == "t/anchor:0"
