"""Tests the op that looks up many features: what it refuses, and how many ops a step has."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library


def int64(values):
    return tf.constant(values, tf.int64)


@pytest.fixture
def table():
    variable = de.Variable(dim=2, initializer=1.0)
    variable.upsert(np.arange(4), np.eye(4, 2, dtype=np.float32))
    return variable


#: The attributes of one dense feature, and of its table.
FEATURE = {
    "table_of": [0],
    "kinds": ["dense"],
    "combiners": ["sum"],
    "lengths": [-1],
    "weighted": [False],
    "padded": [False],
    "padding": [""],
}
TABLE = {"dims": [2], "Tvalues": [tf.float32], "joined": False}
UNTRAINED = {"anchored": [], "Tkeys": [], "Trows": [tf.float32]}


def look_up(table, ids, kind="dense", structure=(), weights=(), **attributes):
    own = {"kinds": [kind], "weighted": [bool(weights)], **attributes}
    return library.de_lookup_features(
        [table.resource_handle],
        [ids],
        list(structure),
        list(weights),
        [],
        **{**FEATURE, **TABLE, **UNTRAINED, **own},
    )


INDICES = int64([[0, 0], [1, 0]])
REFUSED = {
    "row splits past the end": (int64([1, 2]), "ragged", [int64([0, 5])]),
    "row splits that descend": (int64([1, 2]), "ragged", [int64([0, 2, 1, 2])]),
    "no row splits": (int64([1, 2]), "ragged", [int64([])]),
    "ragged values of rank 2": (int64([[1, 2]]), "ragged", [int64([0, 1])]),
    "indices of too many ids": (int64([1]), "sparse", [INDICES, int64([2, 2])]),
    "indices past the shape": (int64([1, 2]), "sparse", [INDICES, int64([1, 2])]),
    "indices out of order": (int64([1, 2]), "sparse", [INDICES[::-1], int64([2, 2])]),
    "negative indices": (int64([1, 2]), "sparse", [INDICES - 1, int64([2, 2])]),
    "a negative shape": (int64([1, 2]), "sparse", [INDICES, int64([-2, 2])]),
    "a shape of rank 3": (int64([1, 2]), "sparse", [INDICES, int64([2, 2, 2])]),
    "a scalar": (int64(1), "dense", []),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_structure_is_refused(table, name):
    ids, kind, structure = REFUSED[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Received"):
        look_up(table, ids, kind, structure)


ATTRIBUTES = {
    "table_of": [1],
    "dims": [3],
    "Tvalues": [tf.float64],
    "lengths": [0],
    "combiners": ["mean", "sum"],
    "weighted": [True],
    "padded": [],
    "kinds": ["ragged"],
    "Trows": [tf.float64],
    "too few Trows": [],
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_wrong_attributes_are_refused(table, name):
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError)):
        look_up(table, int64([[1, 2]]), **{name.split()[-1]: ATTRIBUTES[name]})


def test_wrong_ids_weights_and_padding_are_refused(table):
    with pytest.raises(tf.errors.InvalidArgumentError, match="keys must be"):
        look_up(table, tf.constant([["a"]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights must have the shape"):
        look_up(table, int64([[1, 2]]), weights=[tf.ones([2, 2])])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a wrong value of Tweights"):
        look_up(table, int64([[1, 2]]), weights=[tf.ones([1, 2], tf.float64)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="padding"):
        look_up(table, int64([[1, 2]]), padded=[True], padding=["x"])


def gradient(ids, gradients, **attributes):
    own = {"trained": [0], "Tkeys": [tf.int64], "Ttrained": [tf.float32], **attributes}
    return library.de_lookup_features_gradient(
        [ids], [], [], [gradients], **{**FEATURE, **TABLE, **own}
    )


def test_a_wrong_gradient_is_refused():
    ids = int64([[1, 2], [3, 3]])
    for rows in (tf.ones([3, 2]), tf.ones([2, 3])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="rows must be as many"):
            gradient(ids, rows)
    for wrong in ({"trained": [5]}, {"Ttrained": [tf.float64]}, {"Tkeys": [tf.string]}):
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.InternalError)):
            gradient(ids, tf.ones([2, 2]), **wrong)


def test_joined_features_must_have_as_many_examples(table):
    two = {name: value * 2 for name, value in FEATURE.items()}
    ids = [int64([1, 2]), int64([3])]
    attributes = {**two, **TABLE, **UNTRAINED, "joined": True}
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many examples each"):
        library.de_lookup_features([table.resource_handle], ids, [], [], [], **attributes)


def test_a_second_order_gradient_needs_a_lookup_of_one_feature(table):
    weights = tf.ones([1, 2])
    with tf.GradientTape() as outer:
        outer.watch(weights)
        with tf.GradientTape() as inner:
            inner.watch(weights)
            [rows] = look_up(table, int64([[1, 2]]), weights=[weights], combiners=["mean"])
        gradient = inner.gradient(rows, weights)
    with pytest.raises(LookupError, match="needs a lookup of its own"):
        outer.gradient(gradient, weights)


def ops_of_a_step(count, tables=2):
    """Returns how many ops a step runs besides its inputs, with `count` features."""
    configs = [de.TableConfig(f"ops_{count}_{number}", 4) for number in range(tables)]
    features = {
        str(number): de.FeatureConfig(str(number), configs[number % tables], "mean", max_length=5)
        for number in range(count)
    }
    layer = de.layers.EmbeddingCollection(features, concatenate=True)
    anchors = [each.trainable_variables[0] for each in layer.tables.values()]
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
    optimizer.build(anchors)
    kinds = [
        tf.TensorSpec([8], tf.int64),
        tf.TensorSpec([8, 3], tf.int64),
        tf.RaggedTensorSpec([8, None], tf.int64),
        tf.SparseTensorSpec([8, 3], tf.int64),
    ]

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids) ** 2)
        optimizer.apply(tape.gradient(loss, anchors), anchors)

    specs = {str(number): kinds[number // 2 % 4] for number in range(count)}
    graph = step.get_concrete_function(specs).graph
    # TensorFlow drops the reads that tell a tape of the tables, because no op uses them.
    waiting, run = [each for each in graph.control_outputs if each.type != "ReadVariableOp"], set()
    while waiting:
        operation = waiting.pop()
        if operation.name in run:
            continue
        run.add(operation.name)
        waiting += [*operation.control_inputs, *(each.op for each in operation.inputs)]
    kinds = [graph.get_operation_by_name(name).type for name in run]
    return sum(kind not in ("Placeholder", "ReadVariableOp") for kind in kinds)


def test_the_number_of_ops_grows_with_neither_features_nor_tables():
    assert ops_of_a_step(40) == ops_of_a_step(2)
    assert ops_of_a_step(40, tables=20) == ops_of_a_step(2)
