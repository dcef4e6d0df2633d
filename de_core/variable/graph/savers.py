"""Finds the `tf.compat.v1.train.Saver` that asks an object for its state.

A Saver that is given an anchor saves an empty variable, and the rows are lost without a word. So
anchors and Variables raise while a Saver asks them. No argument tells them who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base import call_stack
from de_core.base.private_names import ASKED_BY_SAVERS, GIVEN_TO_SAVER

# In eager mode a Saver looks at its variables only when it saves or restores.
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
    """Stands for an anchor's bool that says whether it belongs to a graph. Savers read it."""

    def __init__(self, is_of_a_graph: bool, check: Callable[[], None]) -> None:
        self._is_of_a_graph = is_of_a_graph
        self._check = check

    def __bool__(self) -> bool:
        self._check()
        return self._is_of_a_graph


def check_each(anchor: tf.Variable, check: Callable[[], None]) -> None:
    """Runs a check whenever a Saver is about to save an anchor.

    Args:
        anchor: A variable of this process. One that a strategy mirrors is left as it is.
        check: Raises if the Saver must not save it. It also runs when no Saver asks.
    """
    if ASKED_BY_SAVERS in vars(anchor):
        setattr(anchor, ASKED_BY_SAVERS, _Mode(bool(vars(anchor)[ASKED_BY_SAVERS]), check))


def asking() -> Any:
    """Returns the Saver that asks for the state of an object, or None."""
    frame = call_stack.nearest(lambda frame: frame.f_code in _METHODS)
    return None if frame is None else frame.f_locals["self"]


def given_to(saver: Any) -> list[Any]:
    """Returns what a Saver saves, without the names of a dict."""
    given = getattr(saver, GIVEN_TO_SAVER)
    return tf.nest.flatten(list(given.values() if isinstance(given, dict) else given))


def refuse_in_eager_mode(table_name: str) -> None:
    """Raises ValueError if a Saver in eager mode asks for a table or its anchor.

    Args:
        table_name: The table's name, for the message.
    """
    if asking() is None:
        return
    raise ValueError(
        "A Saver in eager mode must not be given tables or their variables, because it saves no "
        f"rows. Received: table={table_name!r}. Use tf.train.Checkpoint or de.checkpoint.save."
    )
