"""Tests the ops of optimizer steps: fresh slots, many tables at once, and what they refuse.

The tests of optimizers compare the rules with Keras, and the engine's tests with formulas.
"""

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library

ONE = tf.constant([1], tf.int64)
RNG = np.random.default_rng(3)


def apply(table, keys, gradients, hyper, rule, owner="o"):
    library.de_tables_apply(
        [table], [keys], [gradients], [hyper], owner, settings_of=[0], rule=rule
    )


def test_rows_written_by_hand_start_with_fresh_slots(make_table):
    table = make_table()
    hyper = tf.constant([0.1, 1e-7, 0.25], tf.float64)
    apply(table, ONE, [[1.0, 1.0]], hyper, "adagrad")
    library.de_table_insert_or_assign(table, ONE + 1, [[0.0, 0.0]])
    keys, slots = library.de_table_export(
        table, Tkeys=tf.int64, Tvalues=tf.float32, slot="o/accumulator"
    )
    by_key = dict(zip(keys.numpy().tolist(), slots.numpy().tolist(), strict=True))
    assert by_key == {1: [1.25, 1.25], 2: [0.25, 0.25]}


def test_one_op_updates_many_tables_bit_for_bit_like_an_op_per_table(run, make_table):
    kinds = [(tf.int64, tf.float32, 2), (tf.string, tf.float64, 3), (tf.int32, tf.bfloat16, 8)]
    sizes = [5, 700, 9000, 1, 0, 300]  # one table has most of the keys
    numbers = [number % len(kinds) for number in range(len(sizes))]
    at_once, alone = (
        [
            make_table(
                key_dtype=kinds[kind][0],
                value_dtype=kinds[kind][1],
                dim=kinds[kind][2],
                initializer="constant",
                init_args=[0.5],
            )
            for kind in numbers
        ]
        for _ in range(2)
    )
    hypers = [tf.constant([rate, 1e-7, 0.25], tf.float64) for rate in (0.1, 0.2)]
    keys, gradients = [], []
    for kind, size in zip(numbers, sizes, strict=True):
        key_dtype, value_dtype, dim = kinds[kind]
        drawn = tf.constant(RNG.integers(0, 40, size), tf.int64)
        is_text = key_dtype == tf.string
        keys.append(tf.strings.as_string(drawn) if is_text else tf.cast(drawn, key_dtype))
        gradients.append(tf.cast(RNG.normal(size=[size, dim]), value_dtype))
    for _ in range(2):
        run(
            lambda: library.de_tables_apply(
                at_once, keys, gradients, hypers, "o", settings_of=[0, 1] * 3, rule="adagrad"
            )
        )
    for number, each in enumerate(zip(alone, keys, gradients, strict=True)):
        for _ in range(2):
            apply(*each, hypers[number % 2], "adagrad")
    for kind, own, table in zip(numbers, keys, zip(at_once, alone, strict=True), strict=True):
        attributes = {"Tvalues": kinds[kind][1], "dim": kinds[kind][2]}
        rows, expected = (library.de_table_find(each, own, **attributes)[0] for each in table)
        np.testing.assert_array_equal(tf.cast(rows, tf.float64), tf.cast(expected, tf.float64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings_of": [0, 1]}, "number the inputs"),
        ({"settings_of": [0, -1]}, "number the inputs"),
        ({"settings_of": [0]}, "for each of 2 tables"),
        ({"keys": [ONE]}, "for each"),
        ({"keys": [ONE, tf.constant([[1]], tf.int64)]}, "keys"),
        ({"keys": [ONE, ["a"]]}, "int64"),
        ({"grads": [[[1.0, 1.0]], [[1.0]]]}, "grads"),
        ({"grads": [[[1.0, 1.0]], [[1.0, 1.0]] * 2]}, "keys"),
        ({"owner": ["o"]}, "scalar"),
        ({"owner": "a/b"}, "owner"),
        ({"owner": ""}, "owner"),
        ({"hypers": [tf.constant(0.1, tf.float64)]}, "vector"),
        ({"hypers": [tf.constant([0.1, 0.2, 0.3, 0.4], tf.float64)]}, "sgd"),
        ({"hypers": [tf.constant([np.nan], tf.float64)]}, "finite"),
        ({"rule": "unknown"}, "rule must name"),
    ],
)
def test_wrong_arguments_are_named_and_do_not_change_their_table(
    run, make_table, arguments, message
):
    """Where an input belongs to one table, the wrong one belongs to the second table."""
    tables = [make_table(), make_table()]
    wrong = tables[1:] if {"keys", "grads"} & arguments.keys() else tables
    arguments = {
        "handles": tables,
        "keys": [ONE, ONE],
        "grads": [[[1.0, 1.0]]] * 2,
        "hypers": [tf.constant([0.1], tf.float64)],
        "owner": "o",
        "settings_of": [0, 0],
        "rule": "sgd",
        **arguments,
    }
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        run(lambda: library.de_tables_apply(**arguments))
    assert [int(library.de_table_size(each)) for each in wrong] == [0] * len(wrong)
