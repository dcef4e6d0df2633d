"""One table on one device: the resource that the ops work on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.initial_rows import InitialRow
from de_core.tables.served_copy import FrozenCopy
from de_core.tables.spec import TableSpec


def is_remote(device: str) -> bool:
    """Returns whether a device is that of a server."""
    return "/job:" in device


class Table(tf.saved_model.experimental.TrackableResource):
    """A hash table from keys to rows, living in the op library.

    In eager mode its memory is freed when this object goes, as that of a `tf.Variable` is: a
    function that captured the handle and is called later fails. TensorFlow keeps some functions for
    ever, so the table must not wait for them. On a server it goes with the last reference to its
    handle, be it a function's. In a TensorFlow 1 graph it belongs to the session.

    Saved as a SavedModel it becomes a read-only table over a snapshot file (see `frozen.py`).

    Args:
        name: Unique among the tables of a graph.
        spec: Dtypes and dim.
        initial: What a key without a row reads as.
        device: Where it lives.
        init_size: Rows to make room for at once.
        policy: The engine's text of what it remembers of rows, admits and gives up.
        metadata: What its snapshot files say of it, keys and values in turn.
    """

    #: Whether it pools rows without handing them out.
    pools = True
    #: Whether its rows are there before and after the process that uses them.
    outlives_its_process = False

    def __init__(
        self,
        name: str,
        spec: TableSpec,
        initial: InitialRow,
        device: str,
        init_size: int,
        policy: str = "",
        metadata: Sequence[str] = (),
    ) -> None:
        # No device for the base class: it would end up in SavedModels.
        super().__init__(device="")
        self.name = name
        self.spec = spec
        self.device = device
        self.metadata = tuple(metadata)
        self._initial = initial
        self._init_size = init_size
        self._policy = policy
        self._frozen_copy: FrozenCopy | None = None
        self._saved_copy: FrozenCopy | None = None
        with tf.init_scope():
            handle = self.resource_handle  # makes the table now, not at the first use
            # Ops that wait in a queue for another process, or another thread, would lose the table.
            is_prompt = tf.config.experimental.get_synchronous_execution()
            if is_prompt and not is_remote(device) and not tf.is_symbolic_tensor(handle):
                with tf.device(device):
                    self._lease = library.de_table_lease(handle)

    def find(self, keys: tf.Tensor, insert: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads rows.

        Args:
            keys: Any shape.
            insert: Whether to store the initial row of each key that has none; else a pure read.

        Returns:
            Values, keys.shape + [dim], and whether each key has a row, keys.shape.
        """
        op = library.de_table_find_or_insert if insert else library.de_table_find
        return tuple(self.run(op, keys, Tvalues=self.spec.value_dtype, dim=self.spec.dim))

    def export(self, slot: str = "", dtype: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and their values [n, dim], or one slot, of `dtype` if not theirs."""
        return tuple(
            self.run(
                library.de_table_export,
                Tkeys=self.spec.key_dtype,
                Tvalues=self.spec.value_dtype if dtype is None else dtype,
                slot=slot,
            )
        )

    def export_batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Yields keys [n] and values [n, dim], a few thousand rows a time; eager mode only."""
        cursor, done = tf.constant(0, tf.uint64), False
        while not done:
            keys, values, cursor, done = self.run(
                library.de_table_export_batch,
                cursor,
                Tkeys=self.spec.key_dtype,
                Tvalues=self.spec.value_dtype,
            )
            if len(keys) > 0:
                yield keys, values

    def stats(self) -> dict[str, Any]:
        """Returns what the table tells of itself; eager mode only."""
        return dict(json.loads(self.run(library.de_table_stats).numpy()))

    def run(self, op: Any, *inputs: Any, **attributes: Any) -> Any:
        """Runs one of the library's ops on this table, on its device.

        Args:
            op: Such as `library.de_table_erase`.
            *inputs: What follows the handle.
            **attributes: Of the op.
        """
        with tf.device(self.device):
            return op(self.resource_handle, *inputs, **attributes)

    def frozen_copy(self, *, new: bool = False) -> FrozenCopy:
        """Returns what will stand for this table in the next SavedModel that includes it.

        Args:
            new: Whether to make it anew, where somebody has asked already.
        """
        if self._frozen_copy is None or new:
            self._frozen_copy = FrozenCopy(self)
        return self._frozen_copy

    def _create_resource(self) -> tf.Tensor:
        with tf.device(self.device):
            return library.de_table(
                shared_name=self.name,
                anonymous=tf.executing_eagerly(),
                key_dtype=self.spec.key_dtype,
                value_dtype=self.spec.value_dtype,
                dim=self.spec.dim,
                init_size=self._init_size,
                policy=self._policy,
                **self._initial.attributes(),
            )

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        if save_type != "savedmodel":
            return {}  # the Variable checkpoints all of its tables together
        return self.frozen_copy().children()

    def _export_to_saved_model_graph(
        self, object_map: Any, tensor_map: Any, **_: Any
    ) -> list[tf.Tensor]:
        # TensorFlow asks for the children first, once or more, and then for this once a save.
        # Its file is copied after that, so it must outlive the call.
        frozen, self._frozen_copy = self._frozen_copy, None
        self._saved_copy = frozen
        if frozen is None:
            raise RuntimeError(f"Table {self.name!r} was asked for its graph before its children.")
        object_map[self] = frozen
        tensor_map[self.resource_handle] = frozen.create_resource()
        return [self.resource_handle]
