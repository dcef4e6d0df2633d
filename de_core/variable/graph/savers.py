"""Finds the `tf.compat.v1.train.Saver` that is saving an object.

A Saver that saves only an anchor saves an empty variable and silently loses the rows. So anchors
and Variables raise an error when a Saver reads their state. TensorFlow does not pass the Saver to
them, so we look for it on the call stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base import call_stack
from de_core.base.private_names import ASKED_BY_SAVERS, GIVEN_TO_SAVER

# In eager mode a Saver reads its variables only when it saves or restores.
_METHODS = {
    method.__code__
    for method in (
        tf.compat.v1.train.Saver.__init__,
        tf.compat.v1.train.Saver.build,
        tf.compat.v1.train.Saver.save,
        tf.compat.v1.train.Saver.restore,
    )
}


class _Mode:
    """Replaces the bool attribute of a variable that Savers read first. Runs a check when read."""

    def __init__(self, is_of_a_graph: bool, check: Callable[[], None]) -> None:
        self._is_of_a_graph = is_of_a_graph
        self._check = check

    def __bool__(self) -> bool:
        self._check()
        return self._is_of_a_graph


def check_when_saved(anchor: tf.Variable, check: Callable[[], None]) -> None:
    """Runs a check whenever a Saver is about to save an anchor.

    TensorFlow may also run the check without a Saver. Does nothing for a strategy's mirrored
    variable.
    """
    if ASKED_BY_SAVERS in vars(anchor):
        setattr(anchor, ASKED_BY_SAVERS, _Mode(bool(vars(anchor)[ASKED_BY_SAVERS]), check))


def current_saver() -> Any:
    """Returns the Saver whose method is on the call stack, or None."""
    frame = call_stack.nearest_of(_METHODS)
    return None if frame is None else frame.f_locals["self"]


def var_list_of(saver: Any) -> list[Any]:
    """Returns the objects in a Saver's `var_list`, without the names of a dict."""
    given = getattr(saver, GIVEN_TO_SAVER)
    return tf.nest.flatten(list(given.values() if isinstance(given, dict) else given))


def refuse_in_eager_mode(table_name: str) -> None:
    """Raises ValueError if a Saver is saving a table or its anchor in eager mode."""
    if current_saver() is None:
        return
    raise ValueError(
        "A Saver in eager mode must not save tables or their anchors, because it saves no rows. "
        f"Received: table={table_name!r}. Use tf.train.Checkpoint or de.checkpoint.save."
    )
