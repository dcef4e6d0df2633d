"""Programs of `tfra` train their tables, or fail: a table never stays untrained in silence."""

import numpy as np
import pytest
import tensorflow as tf

import de_core
from de_core import tfra
from de_core.base.keras import LEGACY, keras
from tests.support.applies import applies_if

de = tfra.dynamic_embedding
IDS = tf.constant([1, 2], tf.int64)
#: Optimizers with a learning rate of 1, by family.
MAKERS = {
    "keras": lambda: keras.optimizers.SGD(1.0),
    "tf1": lambda: tf.compat.v1.train.GradientDescentOptimizer(1.0),
}
if LEGACY:
    MAKERS["legacy"] = lambda: keras.optimizers.legacy.SGD(1.0)
MINIMIZERS = [name for name in MAKERS if LEGACY or name == "tf1"]


@pytest.fixture
def table():
    return de.Variable(dim=1, initializer=0.0)


def loss_and_wrapper(table):
    rows, wrapper = de.embedding_lookup(table, IDS, return_trainable=True)
    return tf.reduce_sum(rows), wrapper


@pytest.mark.parametrize("starts_with", ["nothing", "a dense variable"])
@pytest.mark.parametrize("family", MINIMIZERS)
def test_the_loss_may_add_to_the_list_of_variables(family, starts_with, table):
    optimizer = de.DynamicEmbeddingOptimizer(MAKERS[family]())
    dense = tf.Variable(0.0)
    variables = [] if starts_with == "nothing" else [dense]

    def loss_fn():
        loss, wrapper = loss_and_wrapper(table)
        variables.append(wrapper)
        return loss + dense

    optimizer.minimize(loss_fn, var_list=variables)
    assert table.lookup(IDS).numpy().tolist() == [[-1], [-1]]
    assert dense.numpy() == (0 if starts_with == "nothing" else -1)


@pytest.mark.parametrize("family", MAKERS)
def test_an_optimizer_that_is_not_wrapped_fails(family, table):
    with tf.GradientTape() as tape:
        loss, wrapper = loss_and_wrapper(table)
    pair = (tape.gradient(loss, wrapper), wrapper)
    with pytest.raises((AttributeError, RuntimeError), match="DynamicEmbeddingOptimizer"):
        MAKERS[family]().apply_gradients([pair])
    with pytest.raises(RuntimeError, match=r"must be wrapped.*gradient of table"):
        wrapper.assign(pair[0])
    assert table.size() == 0


class Model(keras.Model):
    """A model as programs write it, with rows of zeros for unknown ids."""

    def __init__(self):
        super().__init__()
        self.users = de.keras.layers.SquashedEmbedding(2, initializer="zeros", name="users")
        self.score = keras.layers.Dense(1)

    input_dtype = "int64"

    def call(self, ids):
        return self.score(self.users(tf.reshape(ids, [-1, 1])))


def saved_without_rows(folder):
    model = Model()
    model(IDS)
    optimizer = de.DynamicEmbeddingOptimizer(MAKERS["keras"]())
    dense = model.score.trainable_variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(IDS))
    optimizer.apply_gradients(list(zip(tape.gradient(loss, dense), dense, strict=True)))
    tf.saved_model.save(
        model,
        str(folder),
        signatures=tf.function(model.call).get_concrete_function(tf.TensorSpec([None], tf.int64)),
    )


def test_a_saved_model_whose_table_was_left_out_of_training_is_not_silent(tmp_path):
    with pytest.warns(UserWarning, match=r"no rows in table 'users'.*Train it"):
        saved_without_rows(tmp_path)


@applies_if(LEGACY, "tf_keras, for this form of files")
def test_weights_of_a_saved_model_bring_the_rows_into_the_next_one(tmp_path):
    """A demonstration program exported only zeros: the rows were not loaded."""
    ids = np.arange(20)
    model = Model()
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    model.fit(ids, ids.astype(np.float32)[:, None], epochs=3, verbose=0)
    options = tf.saved_model.SaveOptions(namespace_whitelist=["TFRA"])
    de.keras.models.save_model(model, str(tmp_path / "trained"), options=options)
    again = Model()
    again.load_weights(str(tmp_path / "trained"))
    again(ids)
    signature = tf.function(again.call).get_concrete_function(tf.TensorSpec([None], tf.int64))
    de.keras.models.save_model(again, str(tmp_path / "export"), signatures=signature)
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    answers = next(iter(served(tf.constant(ids, tf.int64)).values())).numpy().ravel()
    np.testing.assert_allclose(answers, model.predict(ids, verbose=0).ravel(), rtol=1e-6)
    assert len(np.unique(answers)) == 20


@pytest.mark.parametrize("policy", ["TimestampRestrictPolicy", "FrequencyRestrictPolicy"])
def test_a_policy_beside_a_variable_has_a_status_of_its_own(policy, table):
    table.upsert([1, 2, 3, 4], [[0.0]] * 4)
    beside = getattr(de, policy)(table)
    for keys in ([2], [3, 3], [1], [3, 1]):
        beside.apply_update(keys)
    assert beside.status.size() == 3
    beside.apply_restriction(2, trigger=4)
    beside.apply_restriction(2**32)
    beside.apply_restriction(2**32, trigger=2)
    assert beside.status.size() == 3
    for error, arguments in (
        (ValueError, {"num_reserved": -1}),
        (TypeError, {"num_reserved": 1.7}),
        (TypeError, {"num_reserved": "3"}),
        (ValueError, {"num_reserved": 1, "trigger": -1}),
    ):
        with pytest.raises(error, match=f"`{[*arguments][-1]}` must be"):
            beside.apply_restriction(**arguments)
    with pytest.raises(TypeError, match=r"`restrict` takes `num_reserved` and `trigger`.*rows=1"):
        beside.apply_restriction(1, rows=1)
    assert table.size() == 4
    beside.apply_restriction(2)
    assert sorted(table.export()[0].numpy()) == [1, 3, 4]  # 4 was never recorded
    assert sorted(beside.status.export()[0].numpy()) == [1, 3]


@pytest.mark.parametrize("policy", ["TimestampRestrictPolicy", "FrequencyRestrictPolicy"])
def test_the_policy_of_a_variable_uses_its_column(policy):
    table = de.Variable(dim=1, restrict_policy=getattr(de, policy))
    assert not table.restrict_policy.needs_apply_update()
    old_name = "freq_var" if policy.startswith("Frequency") else "tstp_var"
    assert getattr(table.restrict_policy, old_name) is table.restrict_policy.status
    assert isinstance(table.restrict_policy, getattr(de_core, policy))
    for keys in ([2], [3, 3], [1], [3, 1]):
        table.upsert(keys, [[0.0]] * len(keys))
    table.restrict(2)
    assert sorted(table.export()[0].numpy()) == [1, 3]


def test_a_policy_beside_a_variable_works_in_a_graph():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("beside", dim=1)
        policy = de.FrequencyRestrictPolicy(table)
        keys = tf.constant([1, 2], tf.int64)
        wanted = [
            table.upsert(keys, [[0.0], [0.0]]),
            policy.apply_update(keys[1:]),
            policy.apply_update(keys),
            policy.apply_restriction(1, trigger=2),
            policy.apply_restriction(1),
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        for each in wanted[:-1]:
            session.run(each)
        assert session.run(table.size()) == 2
        session.run(wanted[-1])
        assert session.run(table.export())[0].tolist() == [2]
