"""Saves the table of one Variable in TensorFlow's checkpoints."""

from __future__ import annotations

import tempfile
import weakref
from typing import Any

import tensorflow as tf

from de_core.checkpoint import agreement, plan, prefix, reference, weights_file
from de_core.checkpoint.when_used import WhenUsed
from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable

_READER = "RestoreV2"  # the type of the op that reads an entry of a checkpoint


class TableState(tf.Module):
    """A Variable's entry in a checkpoint: a reference to snapshot files beside the checkpoint.

    If the checkpoint's location is unknown (see `prefix.py`), it holds the files' bytes instead.

    Args:
        table: The table.
        first_file: Number of the table's first file in a graph's checkpoint.
    """

    def __init__(self, table: ShardedTable, first_file: int = 0) -> None:
        super().__init__(name="rows")
        self.table = table
        self._first_file = first_file
        self._restoring_from = ""
        self._is_eager = False  # whether TensorFlow asked for the state in eager mode
        self._folder: str | None = None
        self._saves: list[tuple[str, list[str]]] = []  # prefixes and files of the last two saves

    def write(self) -> tf.Tensor:
        """Saves the rows and returns the checkpoint's entry."""
        target, router = prefix.being_written(), self.table.router
        if tf.executing_eagerly() and isinstance(target, str):
            return self._write_beside(target)
        router.require_whole("A checkpoint made in a graph", "Use de.checkpoint.save.")
        if tf.executing_eagerly():
            with tempfile.TemporaryDirectory(prefix="de_core_save_") as folder:
                return tf.stack(weights_file.files(self.table, folder))
        count, first = len(self.table.tables), self._first_file
        if target is None:
            target = prefix.of_the_saver_being_built()
        else:
            first = reference.new_numbers(count)
        if target is None:
            return tf.stack(weights_file.files(self.table, self._lasting_folder()))
        paths = reference.graph_file_names(target, first, count)
        return reference.made(paths, table_files.write(self.table, paths, of_checkpoint=True))

    def _write_beside(self, target: str) -> tf.Tensor:
        active, router = plan.current(), self.table.router
        if active.attributes:
            router.require_whole("A de.checkpoint.Manager", "Use tf.train.CheckpointManager.")
        # When workers train synchronously, only the first worker's checkpoint is kept.
        target = agreement.from_first_worker(router, target)
        # A Manager, which sets attributes, deletes files itself: later deltas may need them.
        lasts = not active.attributes
        if lasts and router.first == 0:  # meanwhile the other workers wait for the file names
            reference.remove_outdated(target, self._saves)
        names = agreement.from_first_worker(router, reference.file_names(target, router.count))
        if lasts:
            self._saves = [*self._saves[-1:], (target, names)]
        paths = names[router.first : router.first + len(self.table.tables)]
        if router.is_spread:
            return self._written_together(paths)
        if self.table in active.earlier:
            attributes = {**active.attributes, "delta": True}
        else:
            attributes = active.attributes
        reports = table_files.write(self.table, paths, **attributes)
        made = reference.made(paths, reports)
        if self.table in active.earlier:
            made = reference.extended(active.earlier[self.table], made)
        active.written[self.table] = (made, reports)
        return made

    def _written_together(self, paths: list[str]) -> tf.Tensor:
        def write() -> list[list[str]]:
            reports = table_files.write(self.table, paths)
            made = reference.made(paths, reports)
            return made.numpy().astype(str).tolist()

        parts = agreement.from_all_workers(self.table.router, write)
        return tf.constant([pair for part in parts for pair in part])

    def _lasting_folder(self) -> str:
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="de_core_save_")
            weakref.finalize(self, folder.cleanup)
            self._folder = folder.name
        return self._folder

    def _serialize_to_tensors(self) -> dict[str, Any]:
        # TensorFlow also calls this method on restore, to learn the tensors' names. So write rows
        # only when TensorFlow uses the tensor.
        entry = WhenUsed(self.write)
        self._is_eager = entry.is_eager
        return {reference.KEY: entry}

    def restore(self, restored: tf.Tensor) -> tf.Operation | None:
        """Restores the rows from a checkpoint's entry.

        Args:
            restored: The result of `write`.

        Returns:
            In a graph, an op.
        """
        if not tf.executing_eagerly() and self._is_eager and restored.op.type == _READER:
            # Like `WhenUsed`: the `tf.function` is TensorFlow's own (`MultiDeviceSaver.restore`).
            name = tf.get_static_value(restored.op.inputs[1])[restored.value_index]
            with tf.init_scope(), tf.device("/CPU:0"):
                [entry] = tf.raw_ops.RestoreV2(
                    prefix=self._restoring_from,
                    tensor_names=[name],
                    shape_and_slices=[""],
                    dtypes=[tf.string],
                )
                return self.restore(entry)
        if not tf.executing_eagerly():
            placeholder = prefix.of_the_saver_being_built()
            if placeholder is None:
                return self._restore_contents_in_a_graph(restored)
            paths = reference.graph_resolved(tf.ensure_shape(restored, [None, 2]), placeholder)
            # Map the files of a SavedModel into memory. A loaded SavedModel is then ready at once,
            # because no rows are copied.
            reading = table_files.Reading(mapped=prefix.saved_model_is_being_built())
            return table_files.restore(self.table, paths, reading)
        if restored.shape.rank != 2:
            weights_file.restore(self.table, tf.unstack(restored))
            return None
        active = plan.current()
        paths = reference.resolved(restored.numpy(), self._restoring_from)
        table_files.restore(self.table, paths, active.reading)
        active.restored[self.table] = restored
        return None

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> tf.Operation | None:
        return self.restore(restored_tensors[reference.KEY])

    def _restore_contents_in_a_graph(self, restored: tf.Tensor) -> tf.Operation:
        folder = self._lasting_folder()
        numbers = tf.strings.as_string(tf.range(tf.size(restored)))
        paths = tf.strings.join([folder + "/restore_", numbers])
        written = tf.map_fn(_write_file, (paths, restored), fn_output_signature=tf.string)
        return table_files.restore(self.table, written)

    def _checkpoint_adapter(self, path: str) -> None:
        self._restoring_from = path  # The prefix. TensorFlow passes it before it restores.

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        del save_type
        return {}


def _write_file(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    path, content = pair
    written = tf.io.write_file(path, content)
    with tf.control_dependencies([written]):
        return tf.identity(path)
