"""Telling dynamic Variables from dense ones in lists of what an optimizer trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from de_core.anchor import table_of


def trainable_wrapper_filter(
    iterable_object_in: Iterable[Any],
    test_unaggregated_function: Callable[[Any], bool] | None = None,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Divides variables into dense ones and those that stand for dynamic tables.

    Args:
        iterable_object_in: Variables, in any order.
        test_unaggregated_function: Tells whether one belongs to the second part; None asks whether
            it is the anchor or the `TrainableWrapper` of a dynamic Variable.

    Returns:
        The dense ones and the others, each in the order they came in.

    Example:
    >>> import tensorflow as tf, de_core as de
    >>> users, dense = de.Variable(dim=2), tf.Variable(1.0)
    >>> others, tables = trainable_wrapper_filter([dense, *users.trainable_variables])
    >>> len(others), len(tables)
    (1, 1)
    """
    test = test_unaggregated_function or (lambda variable: table_of(variable) is not None)
    dense: list[Any] = []
    tables: list[Any] = []
    for variable in iterable_object_in:
        (tables if test(variable) else dense).append(variable)
    return tuple(dense), tuple(tables)
