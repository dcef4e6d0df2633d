"""Reads the rows of the next batches of a dataset while a step runs (`prefetch_rows`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base.checks import check_integer
from de_core.lookup.lookup import one_variable
from de_core.variable.variable import Variable


def prefetch_rows(
    table: Variable, ids_fn: Callable[..., tf.Tensor], batches: int = 2
) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Reads rows of the next batches from the disk of a table with a `tier`, while a step runs.

    Pass the result to `tf.data.Dataset.apply`, as the dataset's last transformation. The rows stay
    in the table's cache until a step changes them. The numbers of training are the same with and
    without prefetching. A table without a `tier` leaves the dataset unchanged.

    Args:
        table: The table.
        ids_fn: Returns the ids of a batch, a tensor of any shape. It takes the components of the
            dataset's elements, as the function of `tf.data.Dataset.map` does.
        batches: Read rows of so many batches ahead. The cache is an eighth of the tier's
            `memory_bytes` and must hold their rows.

    Returns:
        A transformation of datasets.

    Raises:
        TypeError: `table` is not a `de.Variable`, or `batches` is not an integer.
        ValueError: `batches` is out of range.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=4)
    >>> batches = tf.data.Dataset.range(6).batch(2).map(lambda ids: {"user": ids})
    >>> batches = batches.apply(de.prefetch_rows(users, lambda batch: batch["user"]))
    >>> len(list(batches))
    3
    """
    check_integer("batches", batches, 1, 1 << 20)
    table = one_variable(table)

    def transform(dataset: tf.data.Dataset) -> tf.data.Dataset:
        if table._table.spec.tier is None:
            return dataset

        def read(*batch: Any) -> Any:
            table.lookup(tf.reshape(ids_fn(*batch), [-1]))
            # `map` unpacks plain tuples only, also those of one component.
            return batch if type(dataset.element_spec) is tuple else batch[0]

        return dataset.map(read).prefetch(batches)

    return transform
