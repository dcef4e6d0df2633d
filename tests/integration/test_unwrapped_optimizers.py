"""An optimizer that was not wrapped is stopped at its first step, whatever it is and does."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

tf_keras = pytest.importorskip("tf_keras")
v1 = tf.compat.v1
MESSAGE = r"must be wrapped.*use de.DynamicEmbeddingOptimizer\(optimizer\)"
IDS = np.arange(8, dtype=np.int64)
LABELS = np.zeros([8, 1], np.float32)

KERAS = {
    "sgd": {},
    "accumulating": {"gradient_accumulation_steps": 2},
    "averaging": {"use_ema": True},
    "clipping": {"global_clipnorm": 1.0},
}


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("settings", KERAS)
def test_a_model_of_keras(settings, run_eagerly):
    layer = de.layers.Embedding(2)
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(**KERAS[settings]), "mse", run_eagerly=run_eagerly)
    with pytest.raises(RuntimeError, match=MESSAGE):
        model.fit(IDS, LABELS, verbose=0)
    assert int(layer.table.size()) == 0


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_loss_scale_around_one(name, run_eagerly):
    layer = de.layers.Embedding(2)
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    scaled = keras.optimizers.LossScaleOptimizer(getattr(keras.optimizers, name)(0.1))
    model.compile(scaled, "mse", run_eagerly=run_eagerly)
    with pytest.raises(RuntimeError, match=MESSAGE):
        model.fit(IDS, LABELS, verbose=0)
    assert int(layer.table.size()) == 0


def test_a_users_own_that_makes_slots_for_all_variables():
    class Own(keras.optimizers.Optimizer):
        def build(self, variables):
            super().build(variables)
            self.slots = [self.add_variable_from_reference(each) for each in variables]

    table = de.Variable(dim=2, name="t")
    with pytest.raises(RuntimeError, match=MESSAGE):
        Own(0.1).build(table.trainable_variables)


NAMES = ["GradientDescent", "Adam", "Adagrad", "Ftrl", "Adadelta"]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_of_tensorflow_1(name):
    optimizer = getattr(v1.train, f"{name}Optimizer")(0.1)
    with tf.Graph().as_default():
        table = de.get_variable("t", dim=2)
        loss = tf.reduce_sum(de.embedding_lookup(table, IDS))
        with pytest.raises(RuntimeError, match=MESSAGE):
            optimizer.minimize(loss)


def apply(optimizer, in_function):
    table = de.Variable(dim=2, name="t")
    variables = [anchor.value for anchor in table.trainable_variables]

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.embedding_lookup(table, IDS))
        pairs = zip(tape.gradient(loss, variables), variables, strict=True)
        optimizer.apply_gradients(pairs)

    (tf.function(step) if in_function else step)()


@pytest.mark.parametrize(
    "make",
    [
        *(getattr(v1.train, f"{name}Optimizer") for name in NAMES),
        *(
            getattr(of, name)
            for of, name in itertools.product(
                (tf_keras.optimizers, tf_keras.optimizers.legacy),
                ("SGD", "Adam", "Adagrad", "Ftrl", "Nadam"),
            )
        ),
    ],
)
@pytest.mark.parametrize("in_function", [False, True])
def test_a_step_of_tensorflow_2(make, in_function):
    with pytest.raises(RuntimeError, match=MESSAGE):
        apply(make(0.1), in_function)


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
def test_one_on_a_loaded_model(make, method, wrapped, saved_model):
    loaded = tf.saved_model.load(saved_model)
    variables = [loaded.factors, loaded.table.anchor]
    optimizer = de.DynamicEmbeddingOptimizer(make(0.1)) if wrapped else make(0.1)
    with tf.GradientTape() as tape:
        loss = tf.function(getattr(loaded, method))(IDS)
    gradients = tape.gradient(loss, variables)
    with pytest.raises(RuntimeError, match="loaded from a SavedModel are read only: train the mod"):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
    assert loaded.factors.numpy().tolist() == [1.0, 1.0]


def test_what_stands_for_a_table_can_be_saved_and_described():
    with tf.Graph().as_default():
        anchor = de.get_variable("t", dim=2).trainable_variables[0]
        assert isinstance(anchor, tf.Variable)
        assert "t/anchor" in repr(anchor)
        assert anchor.to_proto().variable_name == "t/anchor:0"
