"""Computing or storing rows in low precision gives the same numbers as dense variables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

IDS, DIM, STEPS, BATCH = 12, 4, 6, 16
EPSILON = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.02, epsilon=1e-3),
}


def rows_at_first():
    return np.random.default_rng(5).normal(scale=0.5, size=(IDS, DIM)).astype(np.float32)


def batches():
    """Returns ids and labels. Every id occurs in every step, some of them several times."""
    rng = np.random.default_rng(6)
    some = rng.integers(0, IDS, size=(STEPS, BATCH - IDS))
    ids = np.concatenate([np.tile(np.arange(IDS), (STEPS, 1)), some], 1)
    return ids, rng.normal(size=(STEPS, BATCH, 1)).astype(np.float32)


def gathered(rows, ids):
    """Gathers rows with a dense gradient. Keras would square a sparse gradient slice by slice."""
    return tf.tensordot(tf.one_hot(ids, IDS), rows, 1)


class DenseEmbedding(keras.layers.Layer):
    """A dense layer with float32 rows, which it returns in the dtype of the policy."""

    def build(self, _):
        """Makes the rows."""
        at_first = keras.initializers.Constant(rows_at_first())
        self.rows = self.add_weight(shape=(IDS, DIM), initializer=at_first, autocast=False)

    def call(self, ids):
        """Returns the rows of ids, which Keras passes as floats."""
        return tf.cast(gathered(self.rows, tf.cast(ids, tf.int64)), self.compute_dtype)


@pytest.fixture(params=sorted(EPSILON))
def dtype(request):
    return request.param


@pytest.fixture
def policy(dtype):
    keras.config.set_dtype_policy(f"mixed_{dtype}")
    yield
    keras.config.set_dtype_policy("float32")


def fitted(layer, optimizer, run_eagerly):
    model = keras.Sequential([layer, keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    ids, labels = batches()
    if isinstance(layer, de.layers.Embedding):
        layer.build([None])
        layer.table.upsert(np.arange(IDS), rows_at_first())
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    model.fit(ids.reshape(-1), labels.reshape(-1, 1), **fit)
    return [model.layers[1].kernel.numpy(), model.layers[1].bias.numpy()]


@pytest.mark.each_choice
@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(("name", "own"), [("momentum", False), ("adam", False), ("adam", True)])
def test_fit_under_a_mixed_policy(dtype, name, own, run_eagerly):
    table = de.layers.Embedding(DIM, optimizer=OPTIMIZERS[name]() if own else None)
    optimizer = OPTIMIZERS[name]()
    if own and dtype == "float16":
        optimizer = de.LossScaleOptimizer(optimizer)
    elif not own:
        optimizer = de.DynamicEmbeddingOptimizer(optimizer)
    ours = fitted(table, optimizer, run_eagerly)
    dense = DenseEmbedding()
    theirs = fitted(dense, OPTIMIZERS[name](), run_eagerly)
    assert table(tf.constant([1], tf.int64)).dtype == dtype
    rows = table.table.lookup(np.arange(IDS))
    assert rows.dtype == tf.float32
    moved = np.abs(dense.rows.numpy() - rows_at_first()).max()
    for mine, wanted in zip([rows, *ours], [dense.rows.numpy(), *theirs], strict=True):
        np.testing.assert_allclose(mine, wanted, atol=4 * EPSILON[dtype] * moved)


@pytest.mark.parametrize("dtype", ["float16"], indirect=True)
@pytest.mark.usefixtures("policy")
def test_a_loss_scale_replaces_the_scale_of_the_policy():
    wrapped = de.DynamicEmbeddingOptimizer(OPTIMIZERS["adam"]())
    scaled = de.LossScaleOptimizer(wrapped, initial_scale=8.0)
    assert scaled.inner_optimizer is wrapped.inner_optimizer
    assert scaled.initial_scale == 8.0
    ours = fitted(de.layers.Embedding(DIM), scaled, False)
    by_policy = de.DynamicEmbeddingOptimizer(OPTIMIZERS["adam"]())
    theirs = fitted(de.layers.Embedding(DIM), by_policy, False)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, atol=EPSILON["float16"])
    with pytest.raises(TypeError, match=r"Pass an optimizer such as de\.DynamicEmbeddingOptimizer"):
        de.LossScaleOptimizer(scaled)
