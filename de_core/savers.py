"""What a `tf.compat.v1.train.Saver` that asks an object for its state was given to save."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core import call_stack

# In eager mode a Saver is only made when it saves or restores.
_SAVERS = {
    method.__code__
    for method in (
        tf.compat.v1.train.Saver.__init__,
        tf.compat.v1.train.Saver.build,
        tf.compat.v1.train.Saver.save,
        tf.compat.v1.train.Saver.restore,
    )
}
# Where it looks at what it was given, a list or a dict, and what it calls that there.
_GIVEN = {"op_list_to_dict": "op_list", "validate_and_slice_inputs": "names_to_saveables"}
#: Functions that ask the variables in a list or a dict whether they are of a graph.
ASKING = ("op_list_to_dict", "saveable_objects_for_op")


def is_asking() -> bool:
    """Returns whether a Saver asks, and not a `tf.train.Checkpoint`."""
    return call_stack.nearest(lambda frame: frame.f_code in _SAVERS) is not None


def given() -> list[Any] | None:
    """Returns what the Saver that looks at it now was given to save, or None."""
    frame = call_stack.nearest(lambda frame: frame.f_code.co_name in _GIVEN)
    found: Any = None if frame is None else frame.f_locals.get(_GIVEN[frame.f_code.co_name])
    if isinstance(found, dict):
        found = list(found.values())
    return tf.nest.flatten(found) if isinstance(found, list) else None


def refuse_in_eager_mode(table_name: str) -> None:
    """Raises ValueError: a Saver in eager mode was given a table, or its variable.

    Args:
        table_name: Of the table.
    """
    raise ValueError(
        "A Saver in eager mode must not be given tables or their variables, for it saves no rows: "
        f"use tf.train.Checkpoint or de.checkpoint.save. Received: the table {table_name!r}."
    )
