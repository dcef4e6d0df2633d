"""Saves the table of one Variable in TensorFlow's checkpoints.

TensorFlow requests an object's state without passing the checkpoint's prefix. We need the prefix to
write the rows' files beside the checkpoint. We find it in two places:

- `tf.train.Checkpoint` and `CheckpointManager` request the state in a method whose argument is the
  prefix. We find the argument on the call stack, also in a `tf.function`.
- `tf.compat.v1.train.Saver` creates its ops in a name scope that contains the prefix's placeholder.

No public API tells the prefix. The callbacks of `tf.train.CheckpointOptions` belong to the user who
saves, and the callback after a save runs too late. Without a prefix, the rows' bytes are written
into the checkpoint itself, through memory.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import itertools
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base import call_stack, paths
from de_core.checkpoint import reference, weights_file
from de_core.checkpoint.compaction import Chains
from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable

_READER = "RestoreV2"  # the type of the op that reads an entry of a checkpoint
_WRITERS = {
    cls._write.__code__
    for cls in (tf.train.Checkpoint, tf.compat.v1.train.Checkpoint)
    if hasattr(cls, "_write")
}
# Names of a Saver's two placeholders for the prefix. The first gives the second its default value.
_SAVER_OPS = ("filename", "Const")


@dataclasses.dataclass
class Plan:
    """A `Manager`'s options for the tables that it saves or restores, and the results.

    Attributes:
        chain: Name of the manager's series of saves.
        consistent: As for `de.checkpoint.save`.
        earlier: For each table, the chains of files that its deltas continue.
        written: For each saved table, its chains and the reports of the new files.
        restored: For each restored table, the names and ids of its files, a string array [n, 2].
    """

    chain: str
    consistent: bool = False
    earlier: dict[ShardedTable, Chains] = dataclasses.field(default_factory=dict)
    written: dict[ShardedTable, tuple[Chains, list[dict[str, Any]]]] = dataclasses.field(
        default_factory=dict
    )
    restored: dict[ShardedTable, Any] = dataclasses.field(default_factory=dict)


#: The plan of the manager that is saving or restoring.
active_plan: contextvars.ContextVar[Plan | None] = contextvars.ContextVar(
    "de_core_plan", default=None
)


class TableState(tf.Module):
    """A Variable's entry in a checkpoint: a reference to snapshot files beside the checkpoint.

    If the checkpoint's prefix is unknown, it holds the files' bytes instead.

    Args:
        table: The table.
    """

    def __init__(self, table: ShardedTable) -> None:
        super().__init__(name="rows")
        self.table = table
        self._restoring_from = ""
        self._is_eager = False  # whether TensorFlow asked for the state in eager mode
        self._folder: str | None = None
        self._saves: list[tuple[str, list[str]]] = []  # prefixes and files of the last two saves

    def write(self) -> tf.Tensor:
        """Saves the rows and returns the checkpoint's entry."""
        target, router = _prefix_being_written(), self.table.router
        if tf.executing_eagerly() and isinstance(target, str):
            return self._write_beside(target)
        router.require_whole("A checkpoint made in a graph", "Use de.checkpoint.save.")
        if tf.executing_eagerly():
            with tempfile.TemporaryDirectory(prefix="de_core_save_") as folder:
                return tf.stack(weights_file.files(self.table, folder))
        if target is None:
            target = _prefix_of_the_saver_being_built()
        if target is None:
            return tf.stack(weights_file.files(self.table, self._lasting_folder()))
        files = reference.graph_file_names(target, len(self.table.tables))
        return reference.graph_made(files, table_files.write(self.table, files, of_checkpoint=True))

    def _write_beside(self, target: str) -> tf.Tensor:
        plan, table, router = active_plan.get(), self.table, self.table.router
        earlier: Chains | None = None
        attributes: dict[str, Any] = {}
        if plan is not None:
            router.require_whole("A de.checkpoint.Manager", "Use tf.train.CheckpointManager.")
            earlier = plan.earlier.get(table)
            attributes = {"chain": plan.chain, "commit": False, "consistent": plan.consistent}
            attributes["delta"] = earlier is not None
        elif router.first == 0:  # the other workers wait for the file names
            # A Manager deletes files itself: later deltas may need them.
            reference.remove_outdated(target, self._saves)
        # When workers train synchronously, only the first worker's checkpoint is kept.
        names = reference.file_names(target, router.count)
        if router.is_spread:
            target, names = router.in_each_worker(lambda: (target, names))[0]
        if plan is None:
            self._saves = [*self._saves[-1:], (target, names)]
        files = names[router.first : router.first + len(table.tables)]
        write = functools.partial(table_files.write, table, files, **attributes)
        reports = list(itertools.chain(*router.in_each_worker(write)))
        chains = [list(chain) for chain in earlier or [[]] * len(names)]
        for chain, path, report in zip(chains, names, reports, strict=True):
            chain.append((paths.base_name(path), report["id"]))
        if plan is not None:
            plan.written[table] = chains, reports
        return tf.constant(list(itertools.chain(*chains)))

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
            placeholder = _prefix_of_the_saver_being_built()
            if placeholder is None:

                def written(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
                    with tf.control_dependencies([tf.io.write_file(*pair)]):
                        return tf.identity(pair[0])

                numbers = tf.strings.as_string(tf.range(tf.size(restored)))
                targets = tf.strings.join([self._lasting_folder() + "/restore_", numbers])
                files = tf.map_fn(written, (targets, restored), fn_output_signature=tf.string)
                return table_files.restore(self.table, files)
            files = reference.graph_resolved(tf.ensure_shape(restored, [None, 2]), placeholder)
            return table_files.restore(self.table, files)
        if restored.shape.rank != 2:
            weights_file.restore(self.table, tf.unstack(restored))
            return None
        plan, made = active_plan.get(), restored.numpy().astype(str)
        files = reference.resolved(made, self._restoring_from)
        table_files.restore(self.table, files, chain="" if plan is None else plan.chain)
        if plan is not None:
            plan.restored[self.table] = made
        return None

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> tf.Operation | None:
        return self.restore(restored_tensors[reference.KEY])

    def _checkpoint_adapter(self, path: str) -> None:
        self._restoring_from = path  # The prefix. TensorFlow passes it before it restores.

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        del save_type
        return {}


class WhenUsed:
    """Represents a string tensor until TensorFlow converts it.

    TensorFlow requests an object's tensors also on restore, when it needs only their names. It also
    requests them before the checkpoint's location is known.

    If a checkpoint has variables on several tasks, TensorFlow saves it in a `tf.function` of its
    own (`MultiDeviceSaver.save`, 2.21). The tensor is still computed eagerly then.
    """

    dtype = tf.string
    shape = tf.TensorShape(None)

    def __init__(self, make: Callable[[], tf.Tensor]) -> None:
        self.is_eager = tf.executing_eagerly()
        with tf.device("/CPU:0"):
            # The name of this process's task differs from cluster to cluster. In a graph, a device
            # without a task is on the session's own task.
            self.device = tf.zeros([]).device if self.is_eager else "/device:CPU:0"
        self._make = make
        self._made: tf.Tensor | None = None

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Computes the tensor on the first call, whatever dtype is wanted."""
        del dtype, name
        if self._made is None:
            with tf.init_scope() if self.is_eager else contextlib.nullcontext():
                self._made = self._make()
        return self._made


def _prefix_being_written() -> str | tf.Tensor | None:
    """Returns the prefix of the checkpoint that this thread is writing, or None.

    The prefix is a string in eager mode, otherwise a scalar string tensor.
    """
    frame = call_stack.nearest_of(_WRITERS)
    prefix: Any = None if frame is None else frame.f_locals.get(frame.f_code.co_varnames[1])
    if isinstance(prefix, os.PathLike):
        prefix = os.fspath(prefix)
    if not isinstance(prefix, str) and not tf.is_tensor(prefix):
        return None
    if tf.executing_eagerly():
        return prefix if isinstance(prefix, str) else prefix.numpy().decode()
    # A TensorFlow 1 graph is built once for all prefixes and has a placeholder for them.
    in_function = tf.compat.v1.executing_eagerly_outside_functions()
    return tf.convert_to_tensor(prefix) if in_function else None


def _prefix_of_the_saver_being_built() -> tf.Tensor | None:
    """Returns the prefix placeholder, a scalar string, of the Saver being built, or None."""
    graph = tf.compat.v1.get_default_graph()
    scope = graph.get_name_scope()
    # Take the last match: an imported graph may also contain the scope of an earlier Saver.
    placeholder = "PlaceholderWithDefault"
    for operation in reversed(graph.get_operations() if scope else []):
        parent, _, name = operation.name.rpartition("/")
        in_scope = f"{scope}/".startswith(f"{parent}/")
        if not in_scope or operation.type != placeholder or not name.startswith(_SAVER_OPS[1]):
            continue
        first = operation.inputs[0].op
        if first.type == placeholder and _SAVER_OPS[0] in first.name.rpartition("/")[2]:
            return operation.outputs[0]
    return None
