"""Makes a `Variable`'s table a part of a TensorFlow 1 graph.

The graph holds its Variables, which are deleted with the graph. A session creates a table when the
session first uses the table. Running the anchor's initializer empties the table, as the initializer
of a dense variable restores the initial values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.tables.sharded import ShardedTable
from de_core.variable.anchor import wrap_the_optimizer_in_de_dynamic_embedding_optimizer
from de_core.variable.graph import graph_saver

#: Collections of the anchors of a graph: of all Variables, and of the trainable ones.
DYNAMIC_EMBEDDING_VARIABLES = "dynamic_embedding_variables"
TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES = "trainable_dynamic_embedding_variables"
# A tuple keeps the collection out of MetaGraphs: TensorFlow writes only collections with string
# keys into them.
_STATE_KEY = ("de_core", "graph_state")
# TensorFlow 1's `Scaffold` builds `init_op` and `ready_op` from the items of this collection.
_RESOURCES = "resources"


class GraphState:
    """The Variables, names and Saver object of one TensorFlow 1 graph.

    Attributes:
        shared: The Variables that `get_variable` shares, by full name.
    """

    def __init__(self) -> None:
        self.shared: dict[str, Any] = {}
        self._names: set[str] = set()
        self._saver: graph_saver.GraphSaver | None = None

    def unique_name(self, name: str) -> str:
        """Returns `name`, with a number appended if a Variable of the graph has that name."""
        unique, number = name, 0
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        return unique

    def add(
        self,
        name: str,
        table: ShardedTable,
        trainable: bool,
        collections: Sequence[str] | None,
        checkpoint: bool,
    ) -> tf.Variable:
        """Adds a Variable's table to the graph: reserves its name, creates its anchor.

        Initializing the anchor empties the table, unless its rows are in a storage.
        """
        self._names.add(name)
        keys = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES] if collections is None else [*collections]
        keys.append(DYNAMIC_EMBEDDING_VARIABLES)
        if trainable:
            keys.append(TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES)
        with tf.init_scope(), tf.name_scope(""):
            # Create these ops here and not in `initial_value`, where TensorFlow would place them on
            # the anchor's device.
            with tf.name_scope(f"{table.name}/"):
                start = table.start()
                table.make_reads()

            def initial_value() -> tf.Tensor:
                with tf.control_dependencies([start]):
                    return tf.zeros([0, table.spec.dim], table.spec.value_dtype)

            anchor = tf.compat.v1.Variable(
                initial_value,
                trainable=trainable,
                collections=keys,
                name=f"{table.name}/anchor",
                use_resource=True,
                constraint=wrap_the_optimizer_in_de_dynamic_embedding_optimizer,
            )
            if table.is_remote:
                table.presence = _presence_of_tables(table.name, table.spec.devices)
        anchor._de_table = table
        if checkpoint:  # the graph's Savers save the rows, and refuse the anchor without them
            if self._saver is None:
                self._saver = graph_saver.GraphSaver()
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS, self._saver)
            self._saver.add(table)
            graph_saver.check_when_saved(anchor, self._saver.check_var_list)
        return anchor


def current() -> GraphState | None:
    """Returns the state of the TensorFlow 1 graph that is being built, or None in eager mode.

    In a `tf.function`, the mode of its outermost caller counts, which is usually eager mode.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            return None
        states = tf.compat.v1.get_default_graph().get_collection_ref(_STATE_KEY)
    if not states:
        states.append(GraphState())
    state: GraphState = states[0]
    return state


class _Note(NamedTuple):
    """An item of the collection, with the attributes that TensorFlow reads."""

    handle: tf.Tensor
    create: tf.Operation
    is_initialized: tf.Tensor


def _presence_of_tables(name: str, devices: Sequence[str]) -> Callable[[], tf.Operation]:
    """Detects parameter servers that lost their shards' rows.

    A restarted server creates its shards again, without rows. No worker may train these empty
    shards. So each shard has a flag variable on the same server, which a restart clears too.
    `tf.compat.v1.train.MonitoredSession` checks the flag before a worker continues. If the flag is
    not set, the chief restores the last checkpoint.

    Returns:
        A function that returns an op that sets the flags.
    """
    variables = []
    for index, device in enumerate(devices):
        with tf.device(device):
            variable = tf.compat.v1.Variable(
                True,
                trainable=False,
                collections=[],
                name=f"{name}/present_{index}",
                use_resource=True,
            )
            # Not `tf.compat.v1.is_variable_initialized`: it logs an error when the process exits.
            is_there = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
        note = _Note(variable.handle, variable.initializer, is_there)
        tf.compat.v1.add_to_collection(_RESOURCES, note)
        variables.append(variable)

    def written() -> tf.Operation:
        # Make new ops: the variables' initializers ignore control dependencies.
        return tf.group(*(variable.assign(True, read_value=False) for variable in variables))

    return written
