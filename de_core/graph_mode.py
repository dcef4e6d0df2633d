"""What a `Variable` needs in a graph of TensorFlow 1, where sessions make and fill the tables.

Such a graph holds its Variables itself, so that they go when it goes. A session makes the tables as
it first uses them; running the initializer of the anchor, a variable of TensorFlow's own, empties
them, as the initializer of a dense variable brings its initial values back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core import imported_tables, remote_presence
from de_core.anchor import stopping_optimizers
from de_core.graph_saver import GraphSaver, is_saver
from de_core.imported_tables import ImportedTables
from de_core.sharded_table import ShardedTable

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
        self._imported: dict[str, ImportedTables] = {}

    def unique_name(self, name: str) -> str:
        """Returns `name`, or with a number what no other Variable of the graph is called."""
        unique, number = name, 0
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        return unique

    def take_name(self, name: str) -> None:
        """Keeps a name from being given to another Variable."""
        self._names.add(name)

    def register_for_savers(self, store: ShardedTable, anchor: Any = None) -> None:
        """Makes the graph's Savers save and restore the tables' rows.

        Args:
            store: The tables.
            anchor: Theirs, which Savers then do not take without the rows.
        """
        if self._saver is None:
            self._saver = GraphSaver()
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS, self._saver)
        self._saver.add(store)
        if anchor is not None:
            anchor._de_savers_check = self._saver.check_given

    def imported(self, anchor: tf.Variable) -> ShardedTable:
        """Returns the tables of an anchor that came with a MetaGraph; new Savers then save them.

        Raises:
            ValueError: They need more of the process that made them than a MetaGraph brings.
        """
        found = self._found(anchor)
        self._save_what_was_imported()
        return found

    def _found(self, anchor: tf.Variable) -> ImportedTables:
        if anchor.name not in self._imported:
            self._imported[anchor.name] = imported_tables.found_for(anchor)
        return self._imported[anchor.name]

    def _save_what_was_imported(self) -> None:
        savable = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS)
        # A GraphSaver of the graph that was exported, which no Saver knows what to do with.
        names = [each for each in savable if isinstance(each, tf.Operation) and is_saver(each)]
        anchors = tf.compat.v1.get_collection(DYNAMIC_EMBEDDING_VARIABLES)
        try:
            found = {
                each.name: self._found(each) for each in anchors if not hasattr(each, "_de_table")
            }
        except ValueError:
            return  # and Savers go on to refuse, rather than save some of the tables
        for name in names:
            savable.remove(name)
        saved = {name: store for name, store in found.items() if store.is_saved}
        for store in saved.values() if names else ():
            self.register_for_savers(store)
        if self._saver is not None:
            for anchor in _variables_called(set(saved)):
                stopping_optimizers(anchor)._de_savers_check = self._saver.check_given


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


def imported_table_of(variable: Any) -> ShardedTable | None:
    """Returns the tables of a variable that came with a MetaGraph as their anchor, or None.

    Args:
        variable: Any.

    Raises:
        ValueError: They need more of the process that made them than a MetaGraph brings.
    """
    state = None if hasattr(variable, "_de_table") else current()
    if state is None:
        return None
    anchors = tf.compat.v1.get_collection(DYNAMIC_EMBEDDING_VARIABLES)
    if getattr(variable, "name", None) not in {anchor.name for anchor in anchors}:
        return None
    return state.imported(variable)


def stop_optimizers_of_imported() -> None:
    """Makes the anchors that came with a MetaGraph stop optimizers that were not wrapped."""
    if current() is None:
        return
    with tf.init_scope():
        names = {each.name for each in tf.compat.v1.get_collection(DYNAMIC_EMBEDDING_VARIABLES)}
        for variable in _variables_called(names):
            stopping_optimizers(variable)


def _variables_called(names: set[str]) -> list[tf.Variable]:
    """Returns a graph's variables of these names; an import makes objects for each collection."""
    keys = tf.compat.v1.GraphKeys
    collected = tf.compat.v1.get_collection(keys.TRAINABLE_VARIABLES)
    collected += tf.compat.v1.get_collection(keys.GLOBAL_VARIABLES)
    return [each for each in collected if isinstance(each, tf.Variable) and each.name in names]


def make_anchor(
    store: ShardedTable, trainable: bool, collections: Sequence[str] | None, saved: bool
) -> tf.Variable:
    """Returns the variable that stands for tables in a graph's collections.

    Args:
        store: The tables; initializing the variable empties those in memory.
        trainable: Whether it joins TRAINABLE_VARIABLES.
        collections: Keys of the collections that it joins; None for GLOBAL_VARIABLES.
        saved: Whether Savers save the rows.
    """
    keys = [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES] if collections is None else [*collections]
    keys.append(DYNAMIC_EMBEDDING_VARIABLES)
    if trainable:
        keys.append(TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES)
    with tf.init_scope(), tf.name_scope(""):
        # Made here: in `initial_value` TensorFlow would put it where the anchor is.
        with tf.name_scope(f"{store.name}/"):
            start = store.start()

        def initial_value() -> tf.Tensor:
            with tf.control_dependencies([start]):
                return tf.zeros([0, store.spec.dim], store.spec.value_dtype)

        variable = tf.compat.v1.Variable(
            initial_value,
            trainable=trainable,
            collections=keys,
            name=f"{store.name}/anchor",
            use_resource=True,
        )
        if store.is_remote:
            store.presence = remote_presence.of_tables(store.name, store.spec.devices)
    variable._de_table = store
    imported_tables.leave_record(variable, store, saved)
    return stopping_optimizers(variable)
