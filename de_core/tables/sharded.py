"""The table of a `Variable`: shards on one or more devices, with operations over all shards.

An optimizer step is one of these operations.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import TensorLike
from de_core.tables.policy import TablePolicy, is_reserved
from de_core.tables.router import Router, summed_rows
from de_core.tables.served_copy import stand_ins
from de_core.tables.spec import TableSpec, arithmetic_dtype, is_remote
from de_core.tables.table import Table, apply

# All tables of this process, numbered in order of creation.
_all: weakref.WeakValueDictionary[int, ShardedTable] = weakref.WeakValueDictionary()
_numbers = itertools.count()

_EXPORT_ELSEWHERE = "Save a checkpoint, restore it in one process and export there."


def tables_behind(handles: Iterable[tf.Tensor]) -> list[ShardedTable]:
    """Returns the tables whose resource handles are among a function's captured tensors."""
    wanted = {id(handle) for handle in handles}
    return [
        table
        for _, table in sorted(_all.items())
        if any(id(shard.resource_handle) in wanted for shard in table.tables)
    ]


def living() -> list[ShardedTable]:
    """Returns the current graph's tables; in eager mode, all tables of this process."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    found = []
    for _, table in sorted(_all.items()):
        handle = table.tables[0].resource_handle
        if (handle.graph if tf.is_symbolic_tensor(handle) else None) is graph:
            found.append(table)
    return found


class ShardedTable:
    """A table that consists of one shard per device.

    It is a plain object, so that Keras and TensorFlow do not search it for state.

    Args:
        name: The Variable's name. The shards' names are derived from it.
        spec: Dtypes, dim and devices.
        tables: The shards, one per device.
        router: Assigns keys to shards. If other processes hold some of the shards, methods with
            keys, `size` and `export` use the rows of all processes, and all processes must call
            them.
        policy: Decides which keys get a row and which rows are evicted; None for no policy.
    """

    def __init__(
        self,
        name: str,
        spec: TableSpec,
        tables: Iterable[Table],
        router: Router,
        policy: TablePolicy | None = None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.policy = TablePolicy() if policy is None else policy
        self._is_remote = router.is_spread or any(map(is_remote, spec.devices))
        self._is_one = len(spec.devices) == 1 and not self._is_remote
        #: True if one op may use both a shard and the anchor.
        self.is_on_one_device = not self._is_remote and len(set(spec.devices)) == 1
        #: Returns an op that records, on the shards' devices, that they hold the expected rows.
        self.presence: Callable[[], tf.Operation] | None = None
        #: Called with the keys [n] of each optimizer step.
        self.on_update: Callable[[tf.Tensor], tf.Operation | None] | None = None
        #: Kinds of ids that were looked up: "dense", "ragged" and "sparse".
        self.kinds_of_ids: set[str] = set()
        #: Returns the variables that belong to the table's slots, by name: the count of steps, the
        #: rate and the like. None if the table has no optimizer of its own.
        self.beside_slots: Callable[[], dict[str, Any]] | None = None
        #: True if `start` must not empty the table.
        self.keeps_rows = False
        #: Converts arrays of another dtype, or returns None to refuse them. None to refuse all.
        self.cast: Callable[[str, Any, tf.DType, str], tf.Tensor | None] | None = None
        #: The publications of this table, by directory.
        self.publications: dict[str, Any] = {}
        self.router = router
        self._shards = tuple(tables)
        # Ops that read all rows, by name, for use in a finalized TensorFlow 1 graph.
        self._made: dict[str, Any] = {}
        _all[next(_numbers)] = self

    @property
    def tables(self) -> tuple[Table, ...]:
        """The shards, or in a function of TensorFlow's own ops what stands for them."""
        stand_in = stand_ins.get().get(self)
        return self._shards if stand_in is None else (stand_in,)

    @property
    def is_one(self) -> bool:
        """True if one shard in this process holds all rows. Then no batch is divided."""
        return self._is_one or stand_ins.get().get(self) is not None

    @property
    def is_remote(self) -> bool:
        """True if some shards are in other processes. Then only distinct keys are sent."""
        return self._is_remote and stand_ins.get().get(self) is None

    def of_one_shard(self, shard: Table) -> ShardedTable:
        """Returns a table of one of these shards. It is not among the process's tables."""
        alone = copy.copy(self)
        alone._shards, alone.router = (shard,), Router(None, 1)
        alone._is_one = not alone._is_remote
        alone._made = {}
        return alone

    def in_saved_model(self) -> dict[str, Table]:
        """Returns the objects that TensorFlow stores in a SavedModel, by name.

        Raises:
            NotImplementedError: Other processes hold some of the shards.
        """
        self.router.require_whole("A SavedModel", _EXPORT_ELSEWHERE)
        return {f"table_{index}": table for index, table in enumerate(self.tables)}

    @property
    def outlives_its_process(self) -> bool:
        """True if the rows persist outside this process, for example in Redis."""
        return self.tables[0].outlives_its_process

    def find(self, keys: tf.Tensor, insert: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds rows in all shards; see `Table.find`."""
        if self.is_one:
            return self.tables[0].find(keys, insert)
        return self._read(keys, lambda table, part: table.find(part, insert))

    def contains(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns whether each key has a row, a bool tensor of the shape of `keys`."""
        if self.router.count == 1:
            return self.tables[0].run(library.de_table_contains, keys)
        flat = tf.reshape(keys, [-1])
        [found] = self.router.gather(
            flat, lambda index, part: (self.tables[index].run(library.de_table_contains, part),)
        )
        return tf.ensure_shape(tf.reshape(found, tf.shape(keys)), keys.shape)

    def write(
        self,
        op: Callable[..., tf.Operation | None],
        batch: Sequence[tf.Tensor],
        *inputs: tf.Tensor,
        **attributes: Any,
    ) -> tf.Operation | None:
        """Runs an op on keys [n] and their data, each [n, dim].

        `inputs` are further inputs of the op.
        """
        if self.is_one:
            done = self.tables[0].run(op, *batch, *inputs, **attributes)
            return None if tf.executing_eagerly() else tf.group(done)
        parts = self.router.split(*batch)
        return _grouped(
            table.run(op, *part, *inputs, **attributes)
            for table, part in zip(self.tables, parts, strict=True)
        )

    def keys_of(self, gradient: tf.IndexedSlices) -> tf.Tensor:
        """Returns the keys [n] of a gradient's slices."""
        keys = gradient.indices
        # TensorFlow casts int32 indices to int64 when it concatenates gradients.
        return keys if keys.dtype == self.spec.key_dtype else tf.cast(keys, self.spec.key_dtype)

    def ensure_slots(
        self, owner: tf.Tensor, slots: dict[str, tuple[int, float]]
    ) -> tf.Operation | None:
        """Adds an optimizer's slots that do not exist yet.

        `slots` has the width and the initial value of each slot.
        """
        widths, initial = zip(*slots.values(), strict=True)
        return self.each(
            library.de_table_ensure_slots,
            owner,
            tf.constant(initial, tf.float64),
            names=list(slots),
            widths=list(widths),
        )

    def find_slot(
        self, keys: tf.Tensor, slot: tf.Tensor | str, width: int, dtype: tf.DType | None = None
    ) -> tf.Tensor:
        """Reads one slot or metadata column of the rows of keys of any shape.

        `slot` is a scalar string, "owner/name". `dtype` is that of the values by default.
        """
        dtype = dtype or arithmetic_dtype(self.spec.value_dtype)

        def read(table: Table, part: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            attributes = {"Tvalues": dtype, "dim": width}
            return tuple(table.run(library.de_table_find_slot, part, slot, **attributes))

        return self._read(keys, read, width)[0]

    def assign_slot(
        self, keys: tf.Tensor, values: tf.Tensor, slot: tf.Tensor
    ) -> tf.Operation | None:
        """Writes one slot of the rows of `keys` [n]; `values` are [n, width]."""
        return self.write(library.de_table_assign_slot, (keys, values), slot)

    def slots(self) -> dict[str, int]:
        """Returns the width of each slot and column, by "owner/name". Eager mode only."""
        found = {}
        for table in self.tables:
            names, widths = table.run(library.de_table_slots)
            pairs = zip(names.numpy().tolist(), widths.numpy().tolist(), strict=True)
            found.update({name.decode(): width for name, width in pairs})
        return found

    def slots_of_optimizers(self) -> dict[str, int]:
        """Returns what `slots` returns, without the slots of the library itself."""
        return {name: width for name, width in self.slots().items() if not is_reserved(name)}

    def begin_step(self, keys: tf.Tensor) -> tf.Tensor:
        """Starts an optimizer step that is computed outside the table.

        Admits distinct keys [n], and returns whether each has a row now.
        """
        dtype = self.spec.value_dtype
        nothing = tf.zeros([tf.size(keys), self.spec.dim], dtype)
        learning_rate, owner = tf.zeros([1], tf.float64), tf.constant("none")
        batch = (keys, nothing)
        done = self.write(apply, batch, learning_rate, owner, rule="sgd")
        with tf.control_dependencies([] if done is None else [done]):
            return self.contains(tf.identity(keys))

    def updated(self, keys: tf.Tensor, done: tf.Operation | None) -> tf.Operation | None:
        """Calls `on_update` with the keys of an optimizer step, after the op `done`."""
        if self.on_update is None:
            return done
        with tf.control_dependencies([] if done is None else [done]):
            heard = self.on_update(keys)
        return _grouped([done] if heard is None else [done, heard])

    def each(
        self, op: Callable[..., Any], *inputs: TensorLike, **attributes: Any
    ) -> tf.Operation | None:
        """Runs an op on each shard. Returns one operation, or None in eager mode."""
        return _grouped(table.run(op, *inputs, **attributes) for table in self.tables)

    def erase(self, keys: tf.Tensor) -> tf.Operation | None:
        """Removes the rows of `keys` [n]."""
        return self.write(library.de_table_erase, (keys,))

    def start(self) -> tf.Operation | None:
        """Empties a table in memory, like an initializer, unless its rows are to be kept."""
        is_kept = self.outlives_its_process or self.keeps_rows
        return tf.no_op() if is_kept else self.each(library.de_table_clear)

    def size(self, index: int | None = None) -> tf.Tensor:
        """Returns the number of rows in shard `index` or in the whole table, an int64 scalar."""
        if index is None and self._only_made():
            return self._made["size"]
        tables = self.tables if index is None else (self.tables[index],)
        sizes = [table.run(library.de_table_size) for table in tables]
        size = sizes[0] if len(sizes) == 1 else tf.add_n(sizes)
        return size if index is not None else self.router.total(size)

    def export(self, column: str = "") -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] with their values [n, dim] or a metadata column, int64 [n, 1]."""
        if not column and self._only_made():
            keys, values = self._made["export"]
            return keys, values
        slot = (f"de/{column}", tf.int64) if column else ()
        parts = [table.export(*slot) for table in self.tables]
        if len(parts) > 1:
            keys, values = zip(*parts, strict=True)
            return tf.concat(list(keys), 0), tf.concat(list(values), 0)
        [(keys, values)] = parts
        values = tf.ensure_shape(values, [None, 1 if column else self.spec.dim])
        keys, values = self.router.concatenated_over_processes(keys, values)
        return keys, values

    def export_batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Iterates over keys [n] and values [n, dim], a few thousand rows at a time. Eager only."""
        return itertools.chain.from_iterable(table.export_batches() for table in self.tables)

    def make_reads(self) -> None:
        """Creates the ops of `size` and `export` now, because a finalized graph accepts no ops."""
        self._made = {"size": self.size(), "export": self.export()}

    def _only_made(self) -> bool:
        return bool(self._made) and tf.compat.v1.get_default_graph().finalized

    def _read(
        self,
        keys: tf.Tensor,
        read: Callable[[Table, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
        width: int | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self.is_one:
            return read(self.tables[0], keys)
        flat = tf.reshape(keys, [-1])
        places = None
        if self.is_remote:
            flat, places = tf.unique(flat)
        values, found = self.router.gather(flat, lambda index, part: read(self.tables[index], part))
        if places is not None:
            values, found = tf.gather(values, places), tf.gather(found, places)
        width = self.spec.dim if width is None else width
        rows_shape = tf.concat([tf.shape(keys), [width]], 0)
        values = tf.ensure_shape(tf.reshape(values, rows_shape), keys.shape.concatenate([width]))
        return values, tf.ensure_shape(tf.reshape(found, tf.shape(keys)), keys.shape)


class TableStep(NamedTuple):
    """One optimizer step in one table.

    Attributes:
        gradient: Values [n, dim]; indices [n] are the keys.
        table: The table.
        settings: The rule's hyperparameters, float64 [k]. Tables with equal settings have the same
            tensor.
        owner: Scalar string, the name under which the table keeps the optimizer's slots.
        rule: The engine's name of the update rule.
        average: Whether to keep a moving average of each row.
    """

    gradient: tf.IndexedSlices
    table: ShardedTable
    settings: tf.Tensor
    owner: tf.Tensor
    rule: str
    average: bool

    @property
    def keys(self) -> tf.Tensor:
        """The keys [n] of the gradient's slices."""
        return self.table.keys_of(self.gradient)

    def run(self) -> tf.Operation | None:
        """Does the step by itself. Returns the operation, or None in eager mode."""
        keys, table = self.keys, self.table
        batch = (keys, self.gradient.values)
        if table.is_remote:
            batch = summed_rows(*batch)
        attributes = {"rule": self.rule, "average": self.average}
        done = table.write(apply, batch, self.settings, self.owner, **attributes)
        return table.updated(keys, done)

    def run_in_shard(
        self, shard: int, keys: tf.Tensor, values: tf.Tensor, settings: tf.Tensor
    ) -> tf.Operation | None:
        """Does a shard's part of the step: its keys [m] with their gradients [m, dim].

        `settings` are a tensor on the shard's device. Returns the operation, or None in eager mode.
        """
        attributes = {"rule": self.rule, "average": self.average}
        table = self.table.tables[shard]
        return table.run(apply, keys, values, settings, self.owner, **attributes)


def _grouped(ops: Iterable[tf.Operation | None]) -> tf.Operation | None:
    """Groups ops into one. Returns None in eager mode, where they have already run."""
    ops = list(ops)
    return None if tf.executing_eagerly() else tf.group(*ops)
