"""What a `tf.compat.v1.train.Saver` saves and restores of the tables in its graph."""

from __future__ import annotations

import pathlib
import tempfile
import weakref

import tensorflow as tf

from de_core._ops import library
from de_core.sharded_table import ShardedTable
from de_core.table import Table


class GraphSaver(tf.Module):
    """All tables of a graph as one of its SAVEABLE_OBJECTS.

    One for all, because a Saver calls every such object by the same empty name. Its tensors are
    made when a Saver is, so the Saver knows the tables that are there then, as it does variables.
    A checkpoint holds the snapshot files' bytes under `<name of the Variable>/rows`.
    """

    def __init__(self) -> None:
        # A MetaGraph lists the collection by name, and looks for an operation of that name when it
        # is imported.
        operation = tf.no_op(name="de_core_tables")
        super().__init__(name=operation.name.replace("/", "_"))
        self._element_name = operation.name
        self._stores: list[ShardedTable] = []
        folder = tempfile.TemporaryDirectory(prefix="de_core_saver_")
        weakref.finalize(self, folder.cleanup)
        self._folder = folder.name

    @property
    def name(self) -> str:
        """Name of an operation in the graph."""
        return self._element_name

    def add(self, store: ShardedTable) -> None:
        """Saves these tables too."""
        self._stores.append(store)

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {
            f"{store.name}/rows": tf.stack([self._saved(table) for table in store.tables])
            for store in self._stores
        }

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> tf.Operation:
        return tf.group(
            *(
                self._restored(store, index, restored_tensors[f"{store.name}/rows"])
                for store in self._stores
                for index in range(len(store.tables))
            )
        )

    def _saved(self, table: Table) -> tf.Tensor:
        path = self._path()
        # Writing makes the folder, which is not there in a process that imported the graph.
        with tf.control_dependencies([tf.io.write_file(path, "")]):
            saved = table.run(library.de_table_save, path)
        with tf.control_dependencies([saved]):
            content = tf.io.read_file(path)
        with (
            tf.control_dependencies([content]),
            tf.control_dependencies([tf.io.write_file(path, "")]),
        ):
            return tf.identity(content)

    def _restored(self, store: ShardedTable, index: int, contents: tf.Tensor) -> tf.Operation:
        table, path = store.tables[index], self._path()

        def read(number: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([tf.io.write_file(path, contents[number])]):
                restored = tf.cond(
                    tf.equal(number, 0),
                    lambda: _done(table.run(library.de_table_restore, path, replace=True)),
                    lambda: _done(table.run(library.de_table_restore, path, replace=False)),
                )
            with (
                tf.control_dependencies([restored]),
                tf.control_dependencies([tf.io.write_file(path, "")]),
            ):
                return number + 1

        count = tf.size(contents)
        end = tf.while_loop(
            lambda number: number < count, read, [tf.constant(0)], parallel_iterations=1
        )
        with tf.control_dependencies(tf.nest.flatten(end)):
            if len(store.tables) == 1:
                return tf.no_op()
            # How the keys were divided then is not known, so each table keeps its own of them all.
            keys, _ = table.export()
            strangers = tf.not_equal(store.router.shards(keys), index)
            erased: tf.Operation = table.run(
                library.de_table_erase, tf.boolean_mask(keys, strangers)
            )
            return erased

    def _path(self) -> tf.Tensor:
        """Returns a file of its own for each run: a session may save while another does."""
        unique = tf.strings.as_string(tf.random.uniform([], maxval=2**62, dtype=tf.int64))
        return tf.strings.join([str(pathlib.Path(self._folder)), "/", unique, ".de"])


def _done(operation: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([operation]):
        return tf.constant(True)
