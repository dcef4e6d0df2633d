"""What a `Variable` needs in a graph of TensorFlow 1, where sessions make and fill the tables.

Such a graph holds its Variables itself, so that they go when it goes. A session makes the tables as
it first uses them; running the initializer of the anchor, a variable of TensorFlow's own, empties
them, as the initializer of a dense variable brings its initial values back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.distributed import remote_presence
from de_core.tables.sharded import ShardedTable
from de_core.variable.anchor import wrap_the_optimizer_in_de_dynamic_embedding_optimizer
from de_core.variable.graph import savers
from de_core.variable.graph.graph_saver import GraphSaver

#: Collection of the anchors of a graph's Variables, and of those that are trainable.
DYNAMIC_EMBEDDING_VARIABLES = "dynamic_embedding_variables"
TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES = "trainable_dynamic_embedding_variables"
# TensorFlow writes collections of string keys alone into a MetaGraph: this one stays behind.
_STATE_KEY = ("de_core", "graph_state")


class GraphState:
    """What one graph of TensorFlow 1 knows of its dynamic tables.

    Attributes:
        shared: The Variables that `get_variable` shares, by full name.
    """

    def __init__(self) -> None:
        self.shared: dict[str, Any] = {}
        self._names: set[str] = set()
        self._saver: GraphSaver | None = None

    def unique_name(self, name: str) -> str:
        """Returns `name`, or with a number what no other Variable of the graph is called."""
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
        """Makes a Variable's table a part of the graph: its name, anchor and place in Savers.

        Args:
            name: The Variable's; no other Variable of the graph gets it.
            table: Its table.
            trainable: Whether lookups record gradients.
            collections: See `make_anchor`.
            checkpoint: Whether the graph's Savers save the rows.

        Returns:
            The anchor.
        """
        self._names.add(name)
        anchor = make_anchor(table, trainable, collections)
        if checkpoint:
            self.register_for_savers(table, anchor)
        return anchor

    def register_for_savers(self, table: ShardedTable, anchor: Any = None) -> None:
        """Makes the graph's Savers save and restore the tables' rows.

        Args:
            table: The table.
            anchor: Their anchor. Savers then refuse to save it without the rows.
        """
        if self._saver is None:
            self._saver = GraphSaver()
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS, self._saver)
        self._saver.add(table)
        if anchor is not None:
            savers.check_each(anchor, self._saver.check_given)


def current() -> GraphState | None:
    """Returns the state of the graph that is being built, or None in eager mode and functions.

    A `tf.function` counts as what it is called from: eager mode as a rule.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            return None
        states = tf.compat.v1.get_default_graph().get_collection_ref(_STATE_KEY)
    if not states:
        states.append(GraphState())
    state: GraphState = states[0]
    return state


def make_anchor(
    table: ShardedTable, trainable: bool, collections: Sequence[str] | None
) -> tf.Variable:
    """Returns the variable that stands for tables in a graph's collections.

    Args:
        table: The tables; initializing the variable empties those in memory.
        trainable: Whether it joins TRAINABLE_VARIABLES.
        collections: Keys of the collections that it joins; None for GLOBAL_VARIABLES.
    """
    keys = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES] if collections is None else [*collections]
    keys.append(DYNAMIC_EMBEDDING_VARIABLES)
    if trainable:
        keys.append(TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES)
    with tf.init_scope(), tf.name_scope(""):
        # Made here: in `initial_value` TensorFlow would put it where the anchor is.
        with tf.name_scope(f"{table.name}/"):
            start = table.start()
            table.make_reads()

        def initial_value() -> tf.Tensor:
            with tf.control_dependencies([start]):
                return tf.zeros([0, table.spec.dim], table.spec.value_dtype)

        variable = tf.compat.v1.Variable(
            initial_value,
            trainable=trainable,
            collections=keys,
            name=f"{table.name}/anchor",
            use_resource=True,
            constraint=wrap_the_optimizer_in_de_dynamic_embedding_optimizer,
        )
        if table.is_remote:
            table.presence = remote_presence.of_tables(table.name, table.spec.devices)
    variable._de_table = table
    return variable
