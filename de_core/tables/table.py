"""One shard of a table, on one device: the resource that the ops use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import DTypeLike, TensorLike
from de_core.tables.initial_rows import InitialRow
from de_core.tables.served_copy import FrozenTable
from de_core.tables.spec import TableSpec, is_remote


def apply(
    handle: tf.Tensor,
    keys: tf.Tensor,
    gradients: tf.Tensor,
    hyper: tf.Tensor,
    owner: TensorLike,
    *,
    rule: str,
    average: bool = False,
) -> tf.Operation | None:
    """Runs one optimizer step on one table, as an op for `Table.run`."""
    return library.de_tables_apply(
        [handle], [keys], [gradients], [hyper], owner, settings_of=[0], rule=rule, average=average
    )


class Table(tf.saved_model.experimental.TrackableResource):
    """One shard of a table: a hash map from keys to rows, in the memory of the op library.

    In eager mode, its memory is freed with this object, like a `tf.Variable`. Functions that
    captured the handle then fail when called. TensorFlow never frees some functions, so a captured
    handle must not keep the table alive. A table on a parameter server is freed with the last
    reference to its handle, which may be in a function. In a TensorFlow 1 graph the session owns
    the table.

    In a SavedModel it becomes a read-only table over a snapshot file (see `served_copy.py`).

    Args:
        name: Name, unique among the tables of a graph.
        spec: Dtypes and dim.
        initial: The row that a lookup returns for a key without a row.
        device: The table's device.
        init_size: Number of rows to reserve.
        policy: The engine's settings, as text, for metadata, admission and eviction.
        metadata: Alternating keys and values that its snapshot files store.
    """

    #: True if the table can pool rows itself, without returning them one by one.
    pools = True
    #: True if lookups record gradients.
    records = True
    #: True if rows persist outside this process, for example in Redis.
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
        # Pass no device to the base class: it would be stored in SavedModels.
        super().__init__(device="")
        self.name = name
        self.spec = spec
        self.device = device
        self.metadata = tuple(metadata)
        if spec.key_dtype == tf.int32:  # the files store int32 and int64 keys alike
            self.metadata += ("keys", "int32")
        self.initial = initial
        self._init_size = init_size
        self._policy = policy
        self._frozen_table: FrozenTable | None = None
        self._saved_table: FrozenTable | None = None
        with tf.init_scope():
            handle = self.resource_handle  # creates the table now, not at first use
            # A lease frees the table when this object is deleted. With asynchronous execution, ops
            # that use the table may still be queued then.
            is_prompt = tf.config.experimental.get_synchronous_execution()
            if is_prompt and not is_remote(device) and not tf.is_symbolic_tensor(handle):
                with tf.device(device):
                    self._lease = library.de_table_lease(handle)

    def find(self, keys: tf.Tensor, insert: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the rows of keys, keys.shape + [dim], and whether each key has a row.

        With `insert`, also stores the initial row of each key without a row.
        """
        op = library.de_table_find_or_insert if insert else library.de_table_find
        return tuple(self.run(op, keys, Tvalues=self.spec.value_dtype, dim=self.spec.dim))

    def export(self, slot: str = "", dtype: DTypeLike | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] with values [n, dim] or one slot, cast to `dtype` if given."""
        return tuple(
            self.run(
                library.de_table_export,
                Tkeys=self.spec.key_dtype,
                Tvalues=self.spec.value_dtype if dtype is None else dtype,
                slot=slot,
            )
        )

    def export_batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Yields keys [n] and values [n, dim], a few thousand rows at a time. Eager only."""
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
        """Returns the table's statistics. Eager mode only."""
        return dict(json.loads(self.run(library.de_table_stats).numpy()))

    def run(self, op: Callable[..., Any], *inputs: TensorLike, **attributes: Any) -> Any:
        """Runs an op of the library on this table and its device.

        Args:
            op: An op such as `library.de_table_erase`.
            *inputs: The op's inputs after the handle.
            **attributes: Attributes of the op.
        """
        with tf.device(self.device):
            return op(self.resource_handle, *inputs, **attributes)

    def frozen_table(self, *, new: bool = False) -> FrozenTable:
        """Returns the object that represents this table in the next SavedModel.

        `new` replaces an object that an earlier call made.
        """
        if self._frozen_table is None or new:
            self._frozen_table = FrozenTable(self)
        return self._frozen_table

    def _create_resource(self) -> tf.Tensor:
        tier = self.spec.tier
        # The op makes float64 slots for float64 values by itself.
        halves = self.spec.slot_dtype == tf.bfloat16
        with tf.device(self.device):
            return library.de_table(
                shared_name=self.name,
                anonymous=tf.executing_eagerly(),
                key_dtype=self.spec.key_dtype,
                value_dtype=self.spec.value_dtype,
                dim=self.spec.dim,
                init_size=self._init_size,
                policy=self._policy,
                **({} if tier is None else tier.attributes(self.name, len(self.spec.devices))),
                slot_dtype=tf.bfloat16 if halves else tf.float32,
                **self.initial.attributes(),
            )

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        if save_type != "savedmodel":
            return {}  # the Variable checkpoints all shards together
        return self.frozen_table().children()

    def _export_to_saved_model_graph(
        self, object_map: Any, tensor_map: Any, **_: Any
    ) -> list[tf.Tensor]:
        # TensorFlow calls `_trackable_children` first, at least once, and then this method once per
        # save. It copies the file afterwards, so the frozen copy must outlive this call.
        frozen, self._frozen_table = self._frozen_table, None
        self._saved_table = frozen
        if frozen is None:
            raise RuntimeError(
                f"TensorFlow must get the children of table {self.name!r} before its graph."
            )
        object_map[self] = frozen
        tensor_map[self.resource_handle] = frozen.create_resource()
        return [self.resource_handle]
