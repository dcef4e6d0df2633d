"""What a `tf.compat.v1.train.Saver` saves and restores of the tables in its graph."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from de_core.checkpoint.table_state import TableState
from de_core.checkpoint.when_used import WhenUsed
from de_core.tables.sharded import ShardedTable
from de_core.variable.graph import savers

_NAME = "de_core_tables"
# Import_meta_graph refuses a MetaGraph that was exported without a Saver, and a graph that was
# imported refuses new Savers. TensorFlow says then that this operation is no variable: so the
# operation's name carries the remedy.
_REMEDY = f"{_NAME}_need_Saver.export_meta_graph_and_the_Saver_of_import_meta_graph"


class GraphSaver(tf.Module):
    """All tables of a graph as one of its SAVEABLE_OBJECTS.

    One for all, because a Saver calls every such object by the same empty name. Its tensors are
    made when a Saver is, so the Saver knows the tables that are there then, as it does variables.
    A checkpoint holds the reference to the files beside it under `<name of the Variable>/rows`.
    """

    def __init__(self) -> None:
        # A MetaGraph lists the collection by name, and looks for an operation of that name when it
        # is imported.
        operation = tf.no_op(name=_REMEDY)
        super().__init__(name=re.sub(r"\W", "_", operation.name))
        self._element_name = operation.name
        self._states: list[TableState] = []

    @property
    def name(self) -> str:
        """Name of an operation in the graph."""
        return self._element_name

    def add(self, table: ShardedTable) -> None:
        """Saves these tables too."""
        before = sum(len(state.table.tables) for state in self._states)
        self._states.append(TableState(table, before))

    def check_given(self) -> None:
        """Raises ValueError where a Saver was given a table's anchor, and not the rows."""
        saver = savers.asking()
        given = [self] if saver is None else savers.given_to(saver)
        if any(each is self for each in given):
            return
        raise ValueError(
            "A Saver that is given the variable of a table must be given the rows too: leave "
            "`var_list` out, or add what is in the collection "
            "tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS to it; leave the variable out to leave the "
            "tables out (de.warm_start fills them from another run). Received: "
            f"var_list={[getattr(each, 'name', each) for each in given]}."
        )

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {_key(state): WhenUsed(state.write) for state in self._states}

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> tf.Operation:
        return tf.group(
            *(_restored(state, restored_tensors[_key(state)]) for state in self._states)
        )


def _restored(state: TableState, reference: tf.Tensor) -> tf.Operation:
    restored = state.restore(reference)
    if state.table.presence is None:
        return restored
    with tf.control_dependencies([restored]):
        return state.table.presence()


def _key(state: TableState) -> str:
    return f"{state.table.name}/rows"
