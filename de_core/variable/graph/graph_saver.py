"""Lets a `tf.compat.v1.train.Saver` save and restore the tables of its graph.

A Saver that saves only an anchor saves an empty variable and silently loses the rows. So anchors
and Variables raise an error when a Saver reads their state. TensorFlow does not pass the Saver to
them, so we look for it on the call stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base import call_stack
from de_core.base.private_names import ASKED_BY_SAVERS, GIVEN_TO_SAVER
from de_core.checkpoint.table_state import TableState, WhenUsed
from de_core.tables.sharded import ShardedTable

_NAME = "de_core_tables"
# `import_meta_graph` fails for a MetaGraph that was exported without a Saver, and an imported graph
# fails to create new Savers. TensorFlow's error then says that this operation is not a variable. So
# the operation's name contains the remedy.
_REMEDY = f"{_NAME}_need_Saver.export_meta_graph_and_the_Saver_of_import_meta_graph"
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


class GraphSaver(tf.Module):
    """Saves all tables of a graph, as one object in its collection SAVEABLE_OBJECTS.

    There is one object for all tables, because a Saver gives every such object the same empty name.
    Like variables, the tables that exist when the Saver is created are saved. For each
    Variable, the checkpoint's tensor `<Variable name>/rows` refers to files beside the checkpoint.
    """

    def __init__(self, is_of_var_list: bool = False) -> None:
        self._is_of_var_list = is_of_var_list
        # A MetaGraph stores the names of the collection's objects. When it is imported, TensorFlow
        # looks for operations of these names.
        operation = tf.no_op(name=_REMEDY)
        super().__init__(name=re.sub(r"\W", "_", operation.name))
        self._element_name = operation.name
        self._states: list[TableState] = []

    @property
    def name(self) -> str:
        """Name of an operation in the graph."""
        return self._element_name

    def add(self, table: ShardedTable) -> None:
        """Adds a table to save and restore."""
        self._states.append(TableState(table))

    def check_var_list(self) -> None:
        """Raises ValueError if a Saver's `var_list` has a table's anchor, but not this object."""
        saver = current_saver()
        given = [self] if saver is None else var_list_of(saver)
        if any(each is self for each in given):
            return
        raise ValueError(
            "A Saver that saves the anchor of a table must save the rows too. Received: "
            f"var_list={[getattr(each, 'name', each) for each in given]}. "
            "To save the rows, leave `var_list` out, or add the collection "
            "tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS to it. To save no rows, leave the anchor out "
            "(de.warm_start can fill the table from another run)."
        )

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        return {} if self._is_of_var_list else saveables()

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {_key(state): WhenUsed(state.write) for state in self._states}

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> tf.Operation:
        done = []
        for state in self._states:
            done.append(state.restore(restored_tensors[_key(state)]))
            if state.table.presence is not None:
                with tf.control_dependencies([done[-1]]):
                    done.append(state.table.presence())
        return tf.group(*done)


def saveables() -> dict[str, Any]:
    """Returns one object for all tables in the `var_list` of the Saver that is being made.

    A Saver saves each object that is not a variable under the same empty name, so only the last one
    counts. So each of them must save all tables.

    Raises:
        ValueError: The `var_list` is a dict: there a table would have another name.
    """
    saver = current_saver()
    if saver is None:
        return {}
    listed = var_list_of(saver)
    with_tables = [each for each in listed if hasattr(each, "_table")]
    tables = [getattr(each, "_whole_table", each._table) for each in with_tables]
    if not tables:
        return {}
    if isinstance(getattr(saver, GIVEN_TO_SAVER), dict):
        raise ValueError(
            "A Saver's `var_list` with tables must be a list, because the checkpoint has the "
            f"tables' own names. Received: a dict with {[each.name for each in tables]}. Pass a "
            "list, or leave `var_list` out to save all tables of the graph."
        )
    whole = GraphSaver(is_of_var_list=True)
    savers_of_graphs = [each for each in listed if isinstance(each, GraphSaver)]
    tables += [state.table for each in savers_of_graphs for state in each._states]
    for table in dict.fromkeys(tables):
        whole.add(table)
    return {"rows": whole}


def _key(state: TableState) -> str:
    return f"{state.table.name}/rows"


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
