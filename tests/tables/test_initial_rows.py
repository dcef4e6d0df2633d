import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.tables import initial_rows

MANY = tf.range(20_000, dtype=tf.int64)


def rows(initializer, dim=3, keys=MANY, **arguments):
    name = arguments.pop("name", "table")
    return (
        de.Variable(dim=dim, initializer=initializer, name=name, **arguments).lookup(keys).numpy()
    )


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [
        (None, 0.0),
        (0, 0.0),
        (3, 3.0),
        (0.25, 0.25),
        (True, 1.0),
        (np.float32(1.5), 1.5),
        (np.array(1.5), 1.5),
        (np.array([1.5]), 1.5),
        (tf.constant(1.5), 1.5),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        (np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
        ((1.0, 2.0, 3.0), [1.0, 2.0, 3.0]),
        (np.array([[1.0, 2.0, 3.0]]), [1.0, 2.0, 3.0]),
        (tf.constant([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
        ("zeros", 0.0),
        ("ones", 1.0),
        (keras.initializers.Zeros(), 0.0),
        (keras.initializers.Ones, 1.0),
        (keras.initializers.Constant(4.0), 4.0),
        (tf.zeros_initializer(), 0.0),
        (tf.ones_initializer, 1.0),
        (tf.constant_initializer(4.0), 4.0),
        (tf.constant_initializer([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0]),
        (tf.compat.v1.constant_initializer(4.0), 4.0),
        (lambda shape, dtype: tf.fill(shape, tf.constant(2.5, dtype)), 2.5),
        (lambda shape: np.tile([1.0, 2.0, 3.0], [shape[0], 1]), [1.0, 2.0, 3.0]),
    ],
)
def test_every_row_is_the_constant(initializer, expected):
    values = rows(initializer, keys=[1, 2**50, -7])
    np.testing.assert_array_equal(values, np.broadcast_to(np.float32(expected), [3, 3]))


@pytest.mark.parametrize(
    ("initializer", "low", "high"),
    [
        (keras.initializers.RandomUniform(-0.2, 0.6), -0.2, 0.6),
        (tf.random_uniform_initializer(-0.2, 0.6), -0.2, 0.6),
        (tf.compat.v1.random_uniform_initializer(-0.2, 0.6), -0.2, 0.6),
        ({"class_name": "RandomUniform", "config": {"minval": -0.2, "maxval": 0.6}}, -0.2, 0.6),
        ("uniform", -0.05, 0.05),
        (lambda shape: np.random.default_rng(1).uniform(-0.2, 0.6, shape), -0.2, 0.6),
    ],
)
def test_rows_are_uniform(initializer, low, high):
    values = rows(initializer)
    assert low <= values.min() < low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) < values.max() <= high
    np.testing.assert_allclose(values.mean(0), (low + high) / 2, atol=0.02 * (high - low))
    np.testing.assert_allclose(values.std(0), (high - low) / np.sqrt(12), rtol=0.03)


@pytest.mark.parametrize(
    ("initializer", "mean", "stddev", "bound"),
    [
        (keras.initializers.RandomNormal(0.5, 0.1), 0.5, 0.1, None),
        (tf.random_normal_initializer(0.5, 0.1), 0.5, 0.1, None),
        (keras.initializers.TruncatedNormal(0.5, 0.1), 0.5, 0.0880, 0.2),
        (lambda shape: np.random.default_rng(3).normal(0.5, 0.1, shape), 0.5, 0.1, None),
    ],
)
def test_rows_are_normal(initializer, mean, stddev, bound):
    values = rows(initializer)
    np.testing.assert_allclose(values.mean(0), mean, atol=0.05 * stddev)
    np.testing.assert_allclose(values.std(0), stddev, rtol=0.04)
    if bound is not None:
        assert np.abs(values - mean).max() <= bound


VARIANCE_SCALINGS = [
    keras.initializers.GlorotUniform(seed=1),
    tf.initializers.HeUniform(seed=1),
    tf.compat.v1.glorot_normal_initializer(seed=1),
    keras.initializers.LecunNormal(seed=1),
    keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal", seed=1),
]


@pytest.mark.parametrize("initializer", VARIANCE_SCALINGS)
def test_variance_scalings_draw_as_for_a_dense_matrix_of_that_height(initializer):
    dense = np.asarray(initializer([20_000, 3], dtype=tf.float32))
    variable = de.Variable(dim=3, initializer=initializer, init_size=20_000)
    values = variable.lookup(np.arange(20_000)).numpy()
    np.testing.assert_allclose(values.mean(), 0, atol=0.02 * dense.std())
    np.testing.assert_allclose(values.std(), dense.std(), rtol=0.02)
    np.testing.assert_allclose(np.abs(values).max(), np.abs(dense).max(), rtol=0.2)


@pytest.mark.parametrize("initializer", [*VARIANCE_SCALINGS, "glorot_uniform"])
@pytest.mark.parametrize("make", [de.Variable, de.layers.Embedding])
def test_variance_scalings_need_a_height(initializer, make):
    with pytest.raises(ValueError, match=r"pass `init_size`, .*RandomUniform.*init_size=0"):
        make(dim=3, initializer=initializer)


RANDOM = [
    keras.initializers.RandomUniform(),
    keras.initializers.RandomNormal(),
    keras.initializers.TruncatedNormal(),
    keras.initializers.Orthogonal(),
    lambda shape, dtype: tf.random.normal(shape, dtype=dtype, seed=3),
]


@pytest.mark.parametrize("initializer", RANDOM)
def test_rows_of_different_keys_differ(initializer):
    values = rows(initializer, dim=4)
    assert len(np.unique(values, axis=0)) == len(values)
    assert len(np.unique(values[0])) == 4


@pytest.mark.parametrize("initializer", RANDOM[:-2])
@pytest.mark.parametrize("key_dtype", [tf.int64, tf.string])
def test_a_row_depends_on_the_key_alone(initializer, key_dtype):
    keys = MANY if key_dtype == tf.int64 else tf.strings.as_string(MANY)
    one = de.Variable(key_dtype, dim=2, initializer=initializer, name="t")
    other = de.Variable(key_dtype, dim=2, initializer=initializer, name="t", devices=["/CPU:0"] * 3)
    other.upsert(keys[:500], tf.ones([500, 2]))
    order = np.random.default_rng(0).permutation(np.arange(1000, len(MANY)))
    shuffled = tf.gather(keys, order)
    np.testing.assert_array_equal(one.lookup(shuffled), tf.gather(one.lookup(keys), order))
    np.testing.assert_array_equal(one.lookup(shuffled), other.lookup(shuffled))


def test_rows_are_the_same_in_another_process(run_python):
    source = """
        import keras, de_core as de
        table = de.Variable(dim=2, name="users", initializer=keras.initializers.RandomNormal())
        print(table.lookup([1, -5]).numpy().tolist())
    """
    table = de.Variable(dim=2, name="users", initializer=keras.initializers.RandomNormal())
    assert run_python(source).strip() == str(table.lookup([1, -5]).numpy().tolist())


def test_the_seed_is_the_initializers_own_or_else_the_names():
    unseeded = keras.initializers.RandomNormal()
    assert np.any(rows(unseeded, name="a") != rows(unseeded, name="b"))
    seeded = keras.initializers.RandomNormal(seed=7)
    np.testing.assert_array_equal(rows(seeded, name="a"), rows(seeded, name="b"))
    assert np.any(rows(seeded) != rows(keras.initializers.RandomNormal(seed=8)))
    generator = keras.initializers.RandomNormal(seed=keras.random.SeedGenerator(7))
    partial = functools.partial(keras.initializers.RandomNormal, seed=7)
    for same in (generator, partial):
        np.testing.assert_array_equal(rows(same), rows(seeded))


def test_a_callable_is_called_once():
    calls = []

    def initializer(shape, dtype):
        calls.append(shape)
        return tf.random.normal(shape, dtype=dtype)

    table = de.Variable(dim=3, initializer=initializer)
    table.lookup(MANY)
    table.upsert([1], [[1, 1, 1]])
    table.lookup(MANY)
    assert calls == [[initial_rows.SAMPLE_ROWS, 3]]


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.bfloat16])
def test_random_rows_of_other_floating_dtypes(dtype):
    values = tf.cast(
        de.Variable(
            dim=2, value_dtype=dtype, initializer=keras.initializers.RandomNormal(stddev=0.5)
        ).lookup(MANY),
        tf.float64,
    ).numpy()
    np.testing.assert_allclose(values.std(0), 0.5, rtol=0.04)


@pytest.mark.parametrize(
    "initializer",
    [
        keras.initializers.RandomNormal(seed=1),
        keras.initializers.TruncatedNormal(seed=1),
        keras.initializers.RandomUniform(seed=1),
        lambda shape, dtype: tf.random.normal(shape, dtype=dtype),
    ],
    ids=["normal", "truncated", "uniform", "callable"],
)
def test_random_rows_of_float64_have_its_digits(initializer):
    rows = de.Variable(dim=2, value_dtype=tf.float64, initializer=initializer).lookup(MANY).numpy()
    assert (rows == rows.astype(np.float32)).mean() < 0.001


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.int8, tf.bool])
def test_constant_rows_of_integers(dtype):
    table = de.Variable(dim=2, value_dtype=dtype, initializer=1)
    assert table.lookup([5]).numpy().tolist() == [[1, 1]]


def test_random_integers_are_refused():
    with pytest.raises(TypeError, match="needs floating-point values, not int32"):
        de.Variable(value_dtype=tf.int32, initializer="uniform")


@pytest.mark.parametrize("initializer", [[1.0, 2.0], np.ones([2, 3]), tf.ones([3, 3])])
def test_an_array_of_another_shape(initializer):
    with pytest.raises(ValueError, match=r"scalar or of shape \[3\], one row: write"):
        de.Variable(dim=3, initializer=initializer)


def test_a_callable_that_returns_another_shape():
    with pytest.raises(ValueError, match=r"of the requested shape. Received: shape=\(3,\)"):
        de.Variable(dim=3, initializer=lambda shape, dtype: tf.ones([3], dtype))  # noqa: ARG005


def test_a_subclass_of_a_known_initializer_is_not_taken_for_it():
    class Shifted(keras.initializers.RandomUniform):
        def __call__(self, shape, dtype=None):
            return super().__call__(shape, dtype) + 5.0

    assert rows(Shifted(), keys=[1, 2, 3]).min() > 4.9


@pytest.mark.parametrize("value", [0.5, 2**24 + 1, 2**40 + 1, 300, float("nan"), [1, 300]])
def test_an_integer_table_refuses_numbers_it_would_change(value):
    dtype = tf.int64 if value in (2**24 + 1, 2**40 + 1) else tf.int8
    with pytest.raises(ValueError, match=f"of {dtype.name} values must be whole numbers"):
        de.Variable(dim=2, value_dtype=dtype, initializer=value)
    table = de.Variable(dim=2, value_dtype=tf.int64, initializer=-(2**40))
    assert table.lookup([1]).numpy().tolist() == [[-(2**40)] * 2]


@pytest.mark.parametrize(
    "wrap",
    [
        tf.constant_initializer,
        keras.initializers.Constant,
        tf.compat.v1.constant_initializer,
        lambda value: lambda shape: np.full(shape, value),
    ],
)
def test_an_integer_table_refuses_initializers_of_such_numbers_too(wrap):
    for value in (0.5, 2**24 + 1):
        with pytest.raises(ValueError, match="of int64 values must be whole numbers"):
            de.Variable(value_dtype=tf.int64, initializer=wrap(value))
    table = de.Variable(value_dtype=tf.int64, initializer=wrap(-3))
    assert table.lookup([1]).numpy().tolist() == [[-3]]


@pytest.mark.parametrize("initializer", [1e300, [0.0, -1e39], tf.constant([1e300] * 2, tf.float64)])
def test_numbers_beyond_float32_are_refused(initializer):
    with pytest.raises(ValueError, match=r"computed in float32\. Received: value="):
        de.Variable(dim=2, value_dtype=tf.float64, initializer=initializer)


@pytest.mark.parametrize("initializer", ["x", np.array(["x"]), 5, "ones", [0, 0]])
def test_strings_begin_empty_and_nothing_else(initializer):
    with pytest.raises(TypeError, match=r"of string values must be None.* Received: initializer="):
        de.Variable(dim=2, value_dtype=tf.string, initializer=initializer)
    for empty in (None, 0, "zeros", keras.initializers.Zeros()):
        table = de.Variable(dim=2, value_dtype=tf.string, initializer=empty)
        assert table.lookup([1]).numpy().tolist() == [[b"", b""]]


@pytest.mark.parametrize("tensor", [tf.constant([1, 2]), tf.Variable([1.0, 2.0], dtype=tf.float64)])
def test_a_tensor_of_another_dtype_is_refused(tensor):
    with pytest.raises(ValueError, match="must be of the values' dtype, float32"):
        de.Variable(dim=2, initializer=tensor)
    same = tf.cast(tensor, tf.float32)
    assert de.Variable(dim=2, initializer=same).lookup([1]).numpy().tolist() == [[1, 2]]


def test_a_tensor_that_depends_on_others_is_refused_in_a_graph():
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        for tensor in (v1.placeholder(tf.float32, [2]), v1.get_variable("v", [2])):
            with pytest.raises(
                ValueError, match="must have known values when the Variable is created"
            ):
                de.Variable(dim=2, name="users", initializer=tensor)
        assert de.Variable(dim=2, name="users").name == "users"
