import gc

import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras
from tests.support import execution_modes
from tests.support.applies import applies_if

v1 = tf.compat.v1


@applies_if(not LEGACY, "Keras 3, for an optimizer per table")
def test_a_variable_with_its_own_optimizer_is_shared_by_requests_for_the_same():
    table = de.get_variable("own_rule", dim=1, initializer=1.0, optimizer=keras.optimizers.SGD(0.5))
    assert de.get_variable("own_rule", dim=1) is table
    assert de.get_variable("own_rule", dim=1, optimizer="sgd") is table
    for wrong in ("adam", keras.optimizers.SGD(0.5, momentum=0.9)):
        with pytest.raises(ValueError, match=r"own_rule exists .* same class and settings"):
            de.get_variable("own_rule", dim=1, optimizer=wrong)
    without = de.get_variable("no_rule", dim=1)
    with pytest.raises(ValueError, match="no_rule exists without an optimizer"):
        de.get_variable("no_rule", dim=1, optimizer="sgd")
    assert without.optimizer is None
    optimizer = keras.optimizers.Adam()
    [anchor] = table.trainable_variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([3]))
    gradient = tape.gradient(loss, anchor.value)
    optimizer.apply([gradient], [anchor])
    assert float(table.lookup([3])[0, 0]) == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 4}, "dim=4, but it exists with 3"),
        ({"value_dtype": tf.float64}, "value_dtype='float64', but it exists with 'float32'"),
        ({"key_dtype": tf.string}, "key_dtype='string', but it exists with 'int64'"),
        ({"devices": ["/CPU:0"] * 2}, r"devices=\['/CPU:0', '/CPU:0'\], but it exists with"),
    ],
)
def test_another_request_for_a_name_must_ask_for_the_same(arguments, message):
    table = de.get_variable("mismatch", dim=3)
    with pytest.raises(ValueError, match=message):
        de.get_variable("mismatch", **{"dim": 3, **arguments})
    assert de.get_variable("mismatch", dim=3) is table


def test_a_variable_whose_devices_a_strategy_chose_is_shared():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        table = de.get_variable("mirrored", dim=3)
        assert de.get_variable("mirrored", dim=3) is table
    assert "/job:localhost/" in table.devices[0]
    assert de.get_variable("mirrored", dim=3) is table


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_name_is_needed(name):
    with pytest.raises(TypeError, match="`name` must be a non-empty string"):
        de.get_variable(name)


def test_a_name_is_free_again_when_nobody_holds_the_variable():
    table = de.get_variable("short_lived", dim=3)
    table.upsert([1], [[1, 1, 1]])
    del table
    gc.collect()
    assert int(de.get_variable("short_lived", dim=4).size()) == 0


def test_a_function_shares_at_every_trace():
    outer = de.get_variable("in_function", dim=2, initializer=1.0)

    @tf.function
    def look(ids):
        return de.embedding_lookup(de.get_variable("in_function", dim=2), ids)

    look(tf.constant([1], tf.int64))
    look(tf.constant([1, 2], tf.int64))
    outer.upsert([1], [[5, 5]])
    assert look(tf.constant([1], tf.int64)).numpy().tolist() == [[5, 5]]


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64])
def test_a_function_keeps_what_it_asked_for(dtype):
    name = f"made_in_function_{dtype.name}"

    @tf.function
    def write(ids):
        table = de.get_variable(name, dim=1, value_dtype=dtype)
        table.upsert(ids, tf.ones([tf.size(ids), 1], dtype))
        return table.size()

    assert int(write(tf.constant([1], tf.int64))) == 1
    gc.collect()
    assert int(write(tf.constant([2, 3], tf.int64))) == 3
    assert int(de.get_variable(name, dim=1, value_dtype=dtype).size()) == 3
    del write
    gc.collect()
    assert int(de.get_variable(name, dim=2, value_dtype=dtype).size()) == 0


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    "getter",
    [
        lambda getter, name, **_: getter(name, dim=3),
        lambda getter, name, **_: getter(name, tf.int64, tf.float32, 3),
    ],
)
def test_arguments_that_a_custom_getter_omits_keep_their_values(getter, mode):
    scope = {"custom_getter": getter, "reuse": v1.AUTO_REUSE}
    with execution_modes.entered(mode) as run, v1.variable_scope("own_getter", **scope):
        table = de.get_local_variable("t", initializer=2.0)
        assert de.get_local_variable("t") is table
        assert run.run(lambda: table.lookup([1])).tolist() == [[2.0] * 3]
    assert not table.trainable


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_request_may_bring_its_own_getter_collections_and_caching_device(mode):
    asked = []

    def suffixed(getter, name, **arguments):
        asked.append(name)
        return getter(f"{name}_suffix", **arguments)

    def never(**arguments):
        raise AssertionError(arguments)

    with execution_modes.entered(mode), v1.variable_scope("outer", custom_getter=never):
        request = {"custom_getter": suffixed, "caching_device": "/CPU:0", "collections": ["mine"]}
        made = de.get_variable("own", dim=2, **request)
        local = de.get_local_variable("local", **request)
        assert asked == ["outer/own", "outer/local"]
        assert (made.name, made.dim) == ("outer/own_suffix", 2)
        if mode == "graph":
            assert v1.get_collection("mine") == [*made.variables, *local.variables]
            assert v1.get_collection(v1.GraphKeys.LOCAL_VARIABLES) == local.variables
            assert v1.get_collection(v1.GraphKeys.GLOBAL_VARIABLES) == []


def test_graphs_share_nothing():
    with tf.Graph().as_default():
        first = de.get_variable("t", dim=1)
    with tf.Graph().as_default():
        assert de.get_variable("t", dim=2) is not first
