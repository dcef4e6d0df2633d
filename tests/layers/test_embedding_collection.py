"""Tests the layer over many features against one `Embedding` per feature, and against numpy."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import LEGACY, keras
from tests.support.applies import applies_if

VALUES = np.random.default_rng(0).normal(size=[10, 3]).astype(np.float32)


def int64(values):
    return tf.constant(values, tf.int64)


def ragged(values, dtype=tf.int64):
    return tf.ragged.constant(values, dtype=dtype)


LISTS = [[1, 2, 2, 3], [], [9, 9, 5]]
KINDS = {
    "one": int64([4, 4, 7]),
    "dense": int64([[1, 2, 2], [3, 3, 4], [0, 0, 5]]),
    "deep": int64([[[1, 2], [2, 3]], [[4, 4], [5, 9]], [[1, 1], [0, 8]]]),
    "ragged": ragged(LISTS),
    "sparse": ragged(LISTS).to_sparse(),
}


def filled(variable):
    keys = np.arange(10).astype(str if variable.key_dtype == tf.string else variable.key_dtype.name)
    variable.upsert(keys, VALUES[:, : variable.dim].astype(variable.value_dtype.name))
    return variable


def table(name="rows", dim=3, **options):
    return de.TableConfig(name, dim, **options)


def collection(features, **options):
    layer = de.layers.EmbeddingCollection(features, **options)
    for variable in layer.tables.values():
        filled(variable)
    return layer


def as_embedding(ids):
    """Returns ids as `Embedding` takes them: with an axis to pool."""
    return ids[:, None] if isinstance(ids, tf.Tensor) and ids.shape.rank == 1 else ids


#: With one shard, one op looks up all features; with two, each feature is looked up alone.
SHARDS = pytest.mark.parametrize("devices", [None, ["CPU:0", "CPU:0"]], ids=["one op", "shards"])


@SHARDS
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_pooled_rows_equal_separate_embeddings_bit_for_bit(combiner, devices):
    rows = table(combiner=combiner, devices=devices)
    layer = collection({name: de.FeatureConfig(name, rows) for name in KINDS})
    peer = de.layers.Embedding(3, combiner=combiner, name="rows", devices=devices)
    filled(peer.table)
    ids = {**KINDS, "one": int64([4, 1234, 7])}  # a key without a row reads as its initial row
    found = layer(ids)
    assert list(layer.tables) == ["rows"]
    for name, each in ids.items():
        np.testing.assert_array_equal(found[name], peer(as_embedding(each)), name)


def test_string_and_integer_keys_and_dtypes_mix():
    features = {
        "word": de.FeatureConfig("word", table("words", key_dtype="string"), "sum"),
        "half": de.FeatureConfig("half", table("halves", value_dtype="float16"), "sum"),
        "wide": de.FeatureConfig("wide", table("wide", 2, value_dtype="float64"), "mean"),
        "small": de.FeatureConfig("small", table("small", key_dtype="int32"), "mean"),
    }
    layer = collection(features)
    found = layer(
        {
            "word": ragged([["1", "2"], []], tf.string),
            "half": int64([[1, 2], [3, 3]]),
            "wide": tf.constant([1, 2]),  # int32 for int64 keys
            "small": tf.constant([1, 2]),
        }
    )
    np.testing.assert_allclose(found["word"], [VALUES[1] + VALUES[2], np.zeros(3)], rtol=1e-6)
    np.testing.assert_allclose(found["half"][1], 2 * VALUES[3], rtol=1e-3)
    np.testing.assert_allclose(found["wide"], VALUES[[1, 2], :2], rtol=1e-6)
    np.testing.assert_array_equal(found["small"], VALUES[[1, 2]])


@pytest.mark.each_choice
@SHARDS
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_weights_scale_rows_like_a_sparse_lookup(kind, combiner, devices):
    ids = KINDS[kind]
    flat = ids.values if kind != "dense" else tf.reshape(ids, [-1])
    factors = tf.Variable(np.linspace(0.5, 2, flat.shape[0]).astype(np.float32))
    rows = table(devices=devices)
    layer = collection({"a": de.FeatureConfig("a", rows, combiner, weights=True)})

    def like_ids(weights):
        if kind == "dense":
            return tf.reshape(weights, ids.shape)
        if kind == "ragged":
            return ids.with_values(weights)
        return tf.SparseTensor(ids.indices, weights, ids.dense_shape)

    as_ragged = ids if kind == "ragged" else ragged([each[:4] for each in LISTS])
    if kind == "dense":
        as_ragged = tf.RaggedTensor.from_tensor(ids)
    with tf.GradientTape() as tape:
        rows = layer({"a": ids}, {"a": like_ids(tf.identity(factors))})["a"]
        loss = tf.reduce_sum(rows * tf.range(3.0))
    anchors = [layer.tables["rows"].trainable_variables[0]]
    got = tape.gradient(loss, [factors, *anchors])
    peer = de.Variable(dim=3, devices=devices)
    filled(peer)
    with tf.GradientTape() as tape:
        weights = as_ragged.with_values(tf.identity(factors))
        wanted = de.embedding_lookup_sparse(peer, as_ragged, weights, combiner=combiner)
        loss = tf.reduce_sum(wanted * tf.range(3.0))
    expected = tape.gradient(loss, [factors, peer.trainable_variables[0]])
    np.testing.assert_array_equal(rows, wanted)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_key(got[1]), by_key(expected[1]), rtol=1e-6)


def by_key(gradient):
    total = np.zeros([10, gradient.values.shape[1]])
    np.add.at(total, gradient.indices.numpy(), gradient.values.numpy())
    return total


@SHARDS
def test_only_the_first_ids_count(devices):
    feature = de.FeatureConfig("a", table(devices=devices), "sum", max_length=2)
    layer = collection({"a": feature})
    for name, wanted in (
        ("dense", [[1, 2], [3, 3], [0, 0]]),
        ("ragged", [[1, 2], [], [9, 9]]),
        ("sparse", [[1, 2], [], [9, 9]]),
    ):
        rows = [VALUES[ids].sum(0) for ids in wanted]
        np.testing.assert_allclose(layer({"a": KINDS[name]})["a"], rows, rtol=1e-6)


@SHARDS
def test_sequences_are_filled_with_zeros(devices):
    config = table(devices=devices)
    layer = collection({"a": de.FeatureConfig("a", config, None, max_length=4)})
    zero = np.zeros(3, np.float32)
    for name in ("ragged", "sparse"):
        rows = layer({"a": KINDS[name]})["a"]
        assert rows.shape == [3, 4, 3]
        np.testing.assert_array_equal(rows[0], VALUES[[1, 2, 2, 3]])
        np.testing.assert_array_equal(rows[2], [*VALUES[[9, 9, 5]], zero])
    np.testing.assert_array_equal(layer({"a": KINDS["dense"]})["a"][0], [*VALUES[[1, 2, 2]], zero])
    np.testing.assert_array_equal(layer({"a": KINDS["one"]})["a"], VALUES[[4, 4, 7]])
    short = collection({"a": de.FeatureConfig("a", config, None, max_length=2)})
    np.testing.assert_array_equal(short({"a": KINDS["dense"]})["a"][1], VALUES[[3, 3]])
    np.testing.assert_array_equal(short({"a": KINDS["ragged"]})["a"][0], VALUES[[1, 2]])


@SHARDS
def test_sequences_without_a_length_have_a_row_for_each_id(devices):
    layer = collection({"a": de.FeatureConfig("a", table(devices=devices), None)})
    for ids in (KINDS["deep"], tf.Variable(KINDS["deep"])):
        np.testing.assert_array_equal(layer({"a": ids})["a"], VALUES[KINDS["deep"]])
    rows = layer({"a": KINDS["ragged"]})["a"]
    assert isinstance(rows, tf.RaggedTensor)
    np.testing.assert_array_equal(rows.values, VALUES[[1, 2, 2, 3, 9, 9, 5]])


@SHARDS
def test_padding_is_neither_pooled_nor_trained(devices):
    rows = table(devices=devices)
    layer = collection(
        {
            "mean": de.FeatureConfig("mean", rows, mask_key=0),
            "row": de.FeatureConfig("row", rows, None, mask_key=0),
        }
    )
    ids = int64([[1, 0, 7], [0, 0, 0]])
    with tf.GradientTape() as tape:
        found = layer({"mean": ids, "row": ids})
        loss = tf.add_n([tf.reduce_sum(each) for each in found.values()])
    zero = np.zeros(3)
    np.testing.assert_allclose(found["mean"], [VALUES[[1, 7]].mean(0), zero], rtol=1e-6)
    np.testing.assert_array_equal(found["row"][0], [VALUES[1], zero, VALUES[7]])
    gradient = tape.gradient(loss, layer.tables["rows"].trainable_variables[0])
    np.testing.assert_allclose(by_key(gradient)[:, 0], [0, 1.5, 0, 0, 0, 0, 0, 1.5, 0, 0])


@SHARDS
def test_one_tensor_follows_the_order_of_the_features(devices):
    tables = table("x", devices=devices), table("y", 2, devices=devices)
    features = {"b": de.FeatureConfig("b", tables[0]), "a": de.FeatureConfig("a", tables[1])}
    layer = collection(features, concatenate=True)
    rows = layer({"b": KINDS["ragged"], "a": KINDS["one"]})
    assert rows.shape == [3, 5]
    np.testing.assert_array_equal(rows[:, :2], VALUES[KINDS["one"], :2])
    halves = de.FeatureConfig("h", table("h", 2, value_dtype=tf.bfloat16, devices=devices))
    mixed = collection({"b": features["b"], "h": halves}, concatenate=True)
    found = mixed({"b": KINDS["ragged"], "h": KINDS["one"]})
    np.testing.assert_array_equal(
        found[:, 3:], tf.cast(mixed.tables["h"].lookup(KINDS["one"]), tf.float32)
    )
    with pytest.raises(ValueError, match=r"concatenate=True with the sequences \['b'\]"):
        collection({"b": de.FeatureConfig("b", table(), None)}, concatenate=True)


def test_nests_of_features_are_accepted():
    rows = table()
    layer = collection(
        {"user": {"id": de.FeatureConfig("id", rows)}, "seen": [de.FeatureConfig("first", rows)]}
    )
    found = layer({"user": {"id": KINDS["one"]}, "seen": [KINDS["ragged"]]})
    np.testing.assert_array_equal(found["user"]["id"], VALUES[KINDS["one"]])
    assert found["seen"][0].shape == [3, 3]


def test_ids_may_be_lists_of_numbers_or_strings():
    words = de.FeatureConfig("word", table("words", key_dtype="string"), "sum")
    layer = collection({"id": de.FeatureConfig("id", table()), "word": words})
    found = layer({"id": [1, 2], "word": [["1", "2"], ["3", "3"]]})
    np.testing.assert_array_equal(found["id"], VALUES[[1, 2]])
    np.testing.assert_allclose(found["word"], [VALUES[1] + VALUES[2], 2 * VALUES[3]], rtol=1e-6)
    with pytest.raises(ValueError, match=r"must be dense .*Received: dense ids"):
        layer({"id": 1, "word": "1"})
    for found in layer({"id": [], "word": [[]]}).values():
        assert found.shape[1:] == [3]


BAD = {
    "another structure": (lambda layer: layer({"b": KINDS["one"]}), "keys .'a'.*keys .'b'"),
    "a list": (lambda layer: layer([KINDS["one"]]), "a list of 1"),
    "a dict of ids": (lambda layer: layer({"a": {"x": [1]}}), "at 'a': a FeatureConfig.*'x'"),
    "lists of several lengths": (
        lambda layer: layer({"a": [[1], [2, 3]]}),
        "ids of feature 'a' must be lists of equal lengths.*tf.ragged.constant.*non-rectangular",
    ),
    "mixed": (lambda layer: layer({"a": [1, "x"]}), "feature 'a' .* of int64 ids only.*mixed"),
    "bools": (lambda layer: layer({"a": [True, False]}), "bool"),
    "floats": (
        lambda layer: layer({"a": tf.zeros([3])}),
        "must be int64.*, or cast them. Received: ids.dtype=float32",
    ),
    "deep ragged": (
        lambda layer: layer({"a": ragged([[[1]], [[2]]])}),
        "ragged or sparse .batch, ids.. Received: ragged",
    ),
    "a scalar": (lambda layer: layer({"a": int64(3)}), "must be dense"),
    "weights of another shape": (
        lambda layer: layer({"a": KINDS["dense"]}, {"a": tf.zeros([2, 2])}),
        "of the kind and the shape of its ids",
    ),
    "weights of another kind": (
        lambda layer: layer({"a": KINDS["ragged"]}, {"a": tf.zeros([3, 3])}),
        "of the kind and the shape of its ids",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs_are_refused(name):
    call, message = BAD[name]
    layer = collection({"a": de.FeatureConfig("a", table(), max_length=2)})
    with pytest.raises((TypeError, ValueError), match=message):
        call(layer)


def test_bad_declarations_are_refused():
    rows = table()
    same = {"a": de.FeatureConfig("x", rows), "b": de.FeatureConfig("x", rows)}
    with pytest.raises(ValueError, match=r"distinct names.*\['x'\]"):
        collection(same)
    with pytest.raises(ValueError, match=r"distinct names.*\['rows'\]"):
        collection({"a": de.FeatureConfig("a", rows), "b": de.FeatureConfig("b", table())})
    alike = {
        name: de.FeatureConfig(name, de.TableConfig(name, 3)) for name in ("user.id", "user_2e_id")
    }
    with pytest.raises(ValueError, match=r"distinct names in files.*the table 'user_2e_id'"):
        collection(alike)
    with pytest.raises(TypeError, match=r"must be strings.*\[1, 10\]"):
        collection({"nest": {each: de.FeatureConfig(f"f{each}", rows) for each in (1, 10)}})
    with pytest.raises(ValueError, match="must have a feature"):
        collection({})
    with pytest.raises(TypeError, match=r"must consist of de\.FeatureConfig"):
        collection({"a": rows})
    with pytest.raises(ValueError, match=r"must have weights.*none for 'a'"):
        collection({"a": de.FeatureConfig("a", rows, weights=True)})({"a": KINDS["one"]})
    with pytest.raises(ValueError, match="must have a `max_length` or a `combiner`"):
        collection({"a": de.FeatureConfig("a", rows, None)})({"a": KINDS["sparse"]})
    for wrong in ({"combiner": "max"}, {"max_length": 0}, {"combiner": None, "weights": True}):
        with pytest.raises(ValueError, match="Received"):
            de.FeatureConfig("a", rows, **wrong)
    for wrong in ({"table": "rows"}, {"name": ""}, {"max_length": 1.5}, {"mask_key": "x"}):
        with pytest.raises(TypeError, match="Received"):
            de.FeatureConfig(**{"name": "a", "table": rows, **wrong})
    for wrong in ({"dimm": 3}, {"value_dtype": "int32"}, {"name": 3}):
        with pytest.raises(TypeError, match="Received"):
            de.TableConfig(**{"name": "rows", "dim": 3, **wrong})


def click_model(layer, inputs):
    hidden = layer(inputs)
    flat = hidden if layer.concatenate else keras.layers.Concatenate()(tf.nest.flatten(hidden))
    return keras.Model(inputs, keras.layers.Dense(1, name="click")(flat))


def click_features():
    items = table("items", eviction=de.EvictionLRU(max_rows=1000))
    words = table("words", 2, key_dtype="string")
    return {
        "item": de.FeatureConfig("item", items),
        "near": de.FeatureConfig("near", items, "sum", max_length=3),
        "word": de.FeatureConfig("word", words, mask_key=""),
    }


def click_inputs():
    return {
        "item": keras.Input([], dtype="int64", name="item"),
        "near": keras.Input([3], dtype="int64", name="near"),
        "word": keras.Input([2], dtype="string", name="word"),
    }


CLICKS = {
    "item": int64([1, 2, 3]),
    "near": int64([[1, 2, 2], [3, 3, 4], [0, 0, 5]]),
    "word": tf.constant([["1", ""], ["2", "3"], ["", ""]]),
}


@pytest.mark.parametrize("concatenate", [False, True])
def test_a_model_with_a_collection_is_saved_and_loaded(tmp_path, concatenate):
    layer = collection(click_features(), concatenate=concatenate)
    model = click_model(layer, click_inputs())
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded(CLICKS), model(CLICKS))
    again = next(each for each in loaded.layers if hasattr(each, "tables"))
    assert again.features["near"].table is again.features["item"].table
    assert [repr(each) for each in again.tables["items"].eviction] == [
        repr(each) for each in layer.tables["items"].eviction
    ]
    assert int(again.tables["words"].size()) == 10


def test_a_checkpoint_has_the_rows_of_all_tables(tmp_path):
    def make(*names):
        tables = [table(name) for name in names]
        return collection([de.FeatureConfig(each.name, each) for each in tables])

    first = make("x/y", "x_y")
    # The order of the features does not change which rows a table gets.
    second, third, fourth = (make("x_y", "x/y") for _ in range(3))
    wanted = {"x/y": VALUES[:1] + 1.0, "x_y": VALUES[1:2] + 2.0}
    for name, each in first.tables.items():
        each.upsert([1], wanted[name])
    path = tf.train.Checkpoint(layer=first).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(layer=second).read(path).assert_consumed()
    de.checkpoint.save(first, tmp_path / "tables")
    de.checkpoint.restore(third, tmp_path / "tables")
    de.checkpoint.Manager(first, tmp_path / "managed").save()
    de.checkpoint.Manager(fourth, tmp_path / "managed").restore()
    for other in (second, third, fourth):
        for name, each in other.tables.items():
            np.testing.assert_array_equal(each.lookup([1]), wanted[name])
            assert int(each.size()) == 10


@applies_if(not LEGACY, "Keras 3, for symbolic shapes")
def test_symbolic_inputs_have_the_shapes_of_the_rows():
    rows = table()
    features = {
        "one": de.FeatureConfig("one", rows),
        "some": de.FeatureConfig("some", rows, "sum"),
        "list": de.FeatureConfig("list", rows, None, max_length=5),
        "any": de.FeatureConfig("any", rows, None),
    }
    inputs = {
        "one": keras.Input([], dtype="int64"),
        "some": keras.Input([None], dtype="int64", ragged=True),
        "list": keras.Input([None], dtype="int64", sparse=True),
        "any": keras.Input([7], dtype="int64"),
    }
    found = de.layers.EmbeddingCollection(features)(inputs)
    assert {name: each.shape for name, each in found.items()} == {
        "one": (None, 3),
        "some": (None, 3),
        "list": (None, 5, 3),
        "any": (None, 7, 3),
    }


@applies_if(not LEGACY, "Keras 3, for an optimizer per table")
def test_each_table_may_have_its_own_optimizer():
    tables = [
        table("slow", 2, initializer="zeros", optimizer=keras.optimizers.SGD(0.25)),
        table("fast", 2, initializer="zeros", optimizer=keras.optimizers.SGD(1.0)),
    ]
    features = {each.name: de.FeatureConfig(each.name, each, "sum") for each in tables}
    layer = de.layers.EmbeddingCollection(features, concatenate=True)
    inputs = {name: keras.Input([2], dtype="int64", name=name) for name in features}
    model = keras.Model(inputs, keras.ops.sum(layer(inputs), -1, keepdims=True))
    model.compile("adam", lambda _, y: keras.ops.sum(y))  # each row's gradient is its count
    ids = {name: np.array([[1, 1], [2, 3]]) for name in features}
    model.fit(ids, np.zeros([2, 1]), batch_size=2, verbose=0)
    for name, rate in (("slow", 0.25), ("fast", 1.0)):
        rows = layer.tables[name].lookup([1, 2, 3, 4])[:, 0]
        np.testing.assert_allclose(rows, [-2 * rate, -rate, -rate, 0])
    config = de.layers.EmbeddingCollection.from_config(layer.get_config())
    assert float(config.tables["slow"].optimizer.learning_rate) == 0.25


@SHARDS
def test_training_equals_dense_variables(devices):
    rng = np.random.default_rng(1)
    start = rng.normal(size=[20, 4]).astype(np.float32)
    rows, others = table("rows", 4, devices=devices), table("others", 4, devices=devices)
    features = {
        "a": de.FeatureConfig("a", rows, "mean"),
        "b": de.FeatureConfig("b", rows),
        "c": de.FeatureConfig("c", others, "sqrtn", max_length=3),
    }
    layer = de.layers.EmbeddingCollection(features)
    for each in layer.tables.values():
        each.upsert(np.arange(20), start)
    dense = [tf.Variable(start) for _ in range(2)]
    ours = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad(0.1))
    theirs = keras.optimizers.Adagrad(0.1)
    anchors = [each.trainable_variables[0] for each in layer.tables.values()]

    def pooled(variable, ids, combiner):
        return tf.nn.embedding_lookup_sparse(
            variable, ids.to_sparse(), None, combiner=combiner, allow_fast_lookup=False
        )

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each**2) for each in layer(ids).values()])
        ours.apply_gradients(list(zip(tape.gradient(loss, anchors), anchors, strict=True)))
        with tf.GradientTape() as tape:
            peers = [
                pooled(dense[0], ids["a"], "mean"),
                tf.gather(dense[0], ids["b"]),
                pooled(dense[1], ids["c"][:, :3], "sqrtn"),
            ]
            loss = tf.add_n([tf.reduce_sum(each**2) for each in peers])
        # Keras does not add up the slices of equal ids before it squares them.
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, dense)]
        theirs.apply_gradients(list(zip(gradients, dense, strict=True)))

    ours.build(anchors)
    theirs.build(dense)
    for _ in range(5):
        lists = [rng.integers(0, 20, rng.integers(1, 5)) for _ in range(16)]
        ids = {"a": ragged(lists), "b": int64(rng.integers(0, 20, 8)), "c": ragged(lists[:4])}
        step(ids)
    for variable, peer in zip(layer.tables.values(), dense, strict=True):
        np.testing.assert_allclose(variable.lookup(np.arange(20)), peer, rtol=1e-6, atol=1e-6)
