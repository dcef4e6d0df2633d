"""A wrapper of `tfra` can be used like the rows of its lookup."""

import numpy as np
import pytest
import tensorflow as tf

from de_core import tfra
from de_core.base.keras import LEGACY, keras

de = tfra.dynamic_embedding
SPARSE = tf.sparse.from_dense(tf.constant([[3, 5], [5, 0]], tf.int64))


def looked_up(name, table):
    """Returns a lookup's wrapper; the lookup has the id 5 twice."""
    if name == "embedding_lookup_sparse":
        return de.embedding_lookup_sparse(table, SPARSE, None, return_trainable=True)[1]
    if name == "safe_embedding_lookup_sparse":
        return de.safe_embedding_lookup_sparse(table, SPARSE, return_trainable=True)[1]
    return getattr(de, name)(table, [3, 5, 5], return_trainable=True)[1]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("embedding_lookup", [3, 5, 5]),
        ("embedding_lookup_unique", [3, 5]),
        ("embedding_lookup_sparse", [3, 5]),
        ("safe_embedding_lookup_sparse", [3, 5]),
    ],
)
def test_arithmetic_with_a_wrapper_trains_the_rows(name, ids):
    table = de.Variable(dim=2, initializer=2.0)
    with tf.GradientTape() as tape:
        wrapper = looked_up(name, table)
        loss = tf.nn.l2_loss(wrapper)
    assert loss.numpy() == 4 * len(ids)
    gradient = tape.gradient(loss, wrapper)
    assert gradient.indices.numpy().tolist() == ids
    assert gradient.values.numpy().tolist() == [[2, 2]] * len(ids)
    assert wrapper.shape == wrapper.get_shape() == (len(ids), 2)


@pytest.mark.parametrize("name", ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"])
def test_a_wrapper_has_the_ids_of_nested_ragged_ids(name):
    ids = tf.ragged.constant([[[3, 5], [5]], [[7]]], dtype=tf.int64)
    weights = (None,) if name == "embedding_lookup_sparse" else ()
    table = de.Variable(dim=2)
    wrapper = getattr(de, name)(table, ids, *weights, return_trainable=True)[1]
    assert wrapper.ids.numpy().tolist() == [3, 5, 7]


def test_a_wrapper_has_the_operators_of_a_tensor():
    table = de.Variable(dim=2, initializer=2.0)
    wrapper = de.embedding_lookup(table, [3], return_trainable=True)[1]
    for result, expected in (
        (wrapper + 1.0, 3),
        (1.0 - wrapper, -1),
        (wrapper * wrapper, 4),
        (3.0 / wrapper, 1.5),
        (-wrapper, -2),
        (abs(wrapper) ** 2.0, 4),
        (tf.add(wrapper, 1.0), 3),
        (tf.reduce_mean(wrapper), 2),
        (wrapper[0], 2),
        (np.asarray(wrapper), 2),
        (wrapper.transform(wrapper.value()), 2),
    ):
        np.testing.assert_array_equal(result, np.full_like(result, expected))
    with pytest.raises(ValueError, match=r"Convert them by tf.cast\(wrapper, tf.float64\)"):
        tf.convert_to_tensor(wrapper, tf.float64)


def test_the_arguments_of_tfra_are_accepted():
    table = de.Variable(dim=2, initializer=2.0)
    wrapper = de.TrainableWrapper(table, [3], 1.0, "more", trainable=True)
    np.testing.assert_allclose(wrapper.read_value(do_prefetch=False), [[0.5**0.5] * 2], rtol=1e-6)
    assert wrapper.prefetch_values(update=True).shape == (1, 2)
    assert wrapper.update_op(v0=None) is None
    with tf.Graph().as_default():
        lookup = de.embedding_lookup(de.get_variable("w"), [3], return_trainable=True)[1]
        assert isinstance(lookup.update_op(), tf.Operation)


def test_assign_writes_the_rows_of_the_last_lookup():
    table = de.Variable(dim=2, initializer=2.0)
    shadow = de.shadow_ops.ShadowVariable(table, name="shadow", unknown=1)
    de.shadow_ops.embedding_lookup(shadow, [3, 4])
    assert tf.reduce_sum(shadow * 2.0) == 16
    shadow.assign([[1.0, 1.0], [5.0, 5.0]])
    assert table.lookup([3, 4, 5]).numpy().tolist() == [[1, 1], [5, 5], [2, 2]]


def test_a_function_takes_a_shadow_as_an_argument():
    traced = []

    @tf.function
    def gradient(shadows, ids):
        traced.append(shadows[0].name)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(de.shadow_ops.embedding_lookup(shadows[0], ids) ** 2.0)
        return tape.gradient(loss, shadows[0]).values

    one, two = (de.Variable(dim=2, name=f"argument_{n}", initializer=float(n)) for n in (1, 2))
    shadows = [de.shadow_ops.ShadowVariable(each) for each in (one, two)]
    ids = tf.constant([3], tf.int64)
    for _ in range(2):
        assert gradient(shadows[:1], ids).numpy().tolist() == [[2, 2]]
        assert gradient(shadows[1:], ids).numpy().tolist() == [[4, 4]]
    one.upsert(ids, [[5.0, 5.0]])
    assert gradient(shadows[:1], ids).numpy().tolist() == [[10, 10]]
    assert traced == ["argument_1", "argument_2"]


def test_a_shadow_works_wherever_a_variable_does():
    table = de.Variable(dim=2, initializer=2.0)
    shadow = de.shadow_ops.ShadowVariable(table)
    assert de.embedding_lookup_sparse(shadow, SPARSE, None, combiner="sum").shape == (2, 2)
    assert de.embedding_lookup(shadow, [3]).shape == (1, 2)
    with pytest.raises(TypeError, match=r"`params` must be a de\.Variable"):
        de.embedding_lookup("users", [3])


class Shadowed(tf.Module):
    """Holds a table only by its shadow."""

    def __init__(self):
        self.shadow = de.shadow_ops.ShadowVariable(de.Variable(dim=1, initializer=0.0))

    def __call__(self, ids):
        return de.shadow_ops.embedding_lookup(self.shadow, ids)


class ShadowedLayer(keras.layers.Layer):
    def __init__(self):
        super().__init__(dtype="int64", autocast=False)
        self.shadow = de.shadow_ops.ShadowVariable(de.Variable(dim=1, initializer=0.0))

    def call(self, ids):
        return de.shadow_ops.embedding_lookup(self.shadow, ids)


@pytest.mark.parametrize("kind", [Shadowed, *([ShadowedLayer] if LEGACY else [])])
def test_a_table_that_only_its_shadow_holds_is_trained_and_saved(kind, tmp_path):
    trained, restored = kind(), kind()
    ids = tf.constant([3], tf.int64)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(trained(ids))
    variables = trained.trainable_variables
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    assert trained(ids).numpy() == -1
    path = tf.train.Checkpoint(model=trained).write(tmp_path / "c")
    tf.train.Checkpoint(model=restored).read(path).assert_consumed()
    assert restored(ids).numpy() == -1


@pytest.mark.parametrize(
    "look_up",
    [
        lambda shadow, **norm: de.embedding_lookup(shadow, [3, 5], **norm),
        lambda shadow, **norm: de.embedding_lookup_unique(shadow, [3, 5], **norm),
        lambda shadow, **norm: de.embedding_lookup_sparse(shadow, SPARSE, None, **norm),
        lambda shadow, **norm: de.safe_embedding_lookup_sparse(shadow, SPARSE, **norm),
        lambda shadow, **norm: shadow.embedding_lookup([3, 5], **norm)[0],
    ],
    ids=["plain", "unique", "sparse", "safe_sparse", "of_the_shadow"],
)
def test_lookups_of_a_shadow_have_its_norm(look_up):
    layer = de.keras.layers.Embedding(4, initializer="ones", max_norm=1.0)
    for shadow in (de.shadow_ops.ShadowVariable(layer.table, max_norm=1.0), layer.shadow):
        np.testing.assert_allclose(look_up(shadow), np.full([2, 4], 0.5), rtol=1e-6)
        np.testing.assert_allclose(look_up(shadow, max_norm=4.0), np.ones([2, 4]))
