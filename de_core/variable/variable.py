"""`Variable`: a `tf.Variable` of unbounded height, kept in hash tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from de_core import checkpoint as checkpoints
from de_core.base.checks import checked_init_size, received
from de_core.base.keras import keras
from de_core.distributed import strategy
from de_core.distributed.router import WorkerRouter
from de_core.storage.creator import storage_creator
from de_core.tables import initial_rows
from de_core.tables.admission import Admission
from de_core.tables.eviction import Eviction
from de_core.tables.router import Partitioner, Router, default_partition_fn
from de_core.tables.sharded import ShardedTable, in_memory
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table
from de_core.variable.anchor import new_anchor, new_stand_in, tensor_variable
from de_core.variable.graph import graph_mode
from de_core.variable.inspection import Inspection
from de_core.variable.persistence import Persistence
from de_core.variable.retention import Retention, checked_policy
from de_core.variable.rows import Rows
from de_core.variable.slots import Slots

DEFAULT_NAME = "DynamicEmbedding_Variable"


class Variable(Rows, Inspection, Slots, Retention, Persistence, keras.layers.Layer, tf.Module):
    """Rows of `dim` values by key; a row exists for every key.

    Looking up a key that was never written returns its initial row, a function of the initializer's
    seed and the key alone, and writes nothing. Writing (`upsert`, an optimizer's step) inserts it.

    A Variable is a `tf.Module` and a Keras layer: every module, layer and model that holds one
    trains, saves and restores it. Its one trainable variable is an empty *anchor* that stands for
    the rows; the gradient with respect to it is a `tf.IndexedSlices` of the ids looked up.

    Any method may run at once with any other from any number of threads. A row is read and written
    whole; a batch is not a transaction.

    Args:
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Of the rows. Only rows of floating-point values are trainable.
        dim: Values a row, 1 to 4096.
        devices: Device names; one table is made on each, and the keys are divided among them. None
            is one table on the CPU.
        partitioner: `f(keys [n], shard_num)` returning the table of each key, in [0, shard_num);
            not asked where there is one table.
        shared_name: Not used.
        name: Names the tables, seeds the initializer and names the signatures of an export. Two
            Variables never share rows because of equal names; `de.get_variable` shares.
        initializer: None for zeros; a number; an array, list or tensor of shape [] or [dim]; a
            Keras or TensorFlow initializer; or a callable `f(shape, dtype)`, which is evaluated
            once: initial rows then follow the distribution of each of its columns. The numbers
            that it is given are rounded to float32; draws for float64 values are of float64. A
            `VarianceScaling` (Glorot's, He's, Lecun's) draws as for a matrix [init_size, dim].
        trainable: Whether lookups record gradients.
        checkpoint: Whether checkpoints include the rows.
        init_size: Rows to make room for at once, divided among the tables.
        kv_creator: The storage: None or a `CuckooHashTableCreator` for main memory, a
            `RedisTableCreator`, or a `KVCreator` of yours. A storage finds its rows by `name`.
        restrict_policy: The rule of `restrict`: a subclass of `de.RestrictPolicy`, such as
            `de.TimestampRestrictPolicy`.
        bp_v2: Kept for compatibility. Each optimizer step is one atomic update inside the table, so
            concurrent updates of a row add up in any case.
        short_file_name: Kept for compatibility. File names are short in any case.
        regularizer: `f(rows [n, dim])` returning a penalty or None. In graphs, that of the distinct
            rows of each lookup joins the collection REGULARIZATION_LOSSES, unless it is in a branch
            or a loop; see `regularization_loss`.
        collections: In a graph of TensorFlow 1, the collections that the anchor joins; None for
            GLOBAL_VARIABLES. A trainable one joins TRAINABLE_VARIABLES besides.
        admission: Which keys get a row, such as `de.AdmissionCount(2)`; None for all that are
            written.
        eviction: Which rows go by themselves, such as `de.EvictionLRU(max_rows=10**6)`; one policy,
            or a list of a bound and a time to live.

    In a graph of TensorFlow 1 the session makes the tables, running the anchor's initializer (as
    `tf.compat.v1.global_variables_initializer` does) empties them, and a Saver includes them.

    Raises:
        TypeError: An argument of a wrong type or dtype.
        ValueError: `dim`, `devices`, `init_size` or `initializer` is out of range, or the
            `initializer` is a `VarianceScaling` and there is no `init_size`.
        NotImplementedError: The storage of `kv_creator` cannot do what other arguments ask for.

    Example:
    >>> users = Variable(dim=2, name="users", initializer=0.5)
    >>> users.upsert([7], [[1.0, 2.0]])
    >>> users.lookup([7, 8]).numpy().tolist()
    [[1.0, 2.0], [0.5, 0.5]]
    >>> int(users.size())
    1
    """

    def __init__(
        self,
        key_dtype: Any = tf.int64,
        value_dtype: Any = tf.float32,
        dim: int = 1,
        devices: Sequence[str] | None = None,
        partitioner: Partitioner | None = default_partition_fn,
        shared_name: str | None = None,
        name: str | None = DEFAULT_NAME,
        initializer: Any = None,
        trainable: bool = True,
        checkpoint: bool = True,
        init_size: int = 0,
        kv_creator: Any = None,
        restrict_policy: Any = None,
        bp_v2: bool = False,
        short_file_name: bool = False,
        *,
        regularizer: Callable[[tf.Tensor], tf.Tensor | None] | None = None,
        collections: Sequence[str] | None = None,
        admission: Admission | None = None,
        eviction: Eviction | Sequence[Eviction] | None = None,
    ) -> None:
        # Long: it checks its many arguments one by one, then makes the tables and their anchor.
        if devices is None:
            devices = strategy.devices_of_the_scope()
        spec = TableSpec.checked(key_dtype, value_dtype, dim, devices)
        init_size = checked_init_size(init_size)
        creator = storage_creator(kv_creator)
        workers = strategy.workers_of_the_scope()
        if workers is not None:
            strategy.check_spec(spec, creator)
        policy = checked_policy(restrict_policy, admission, eviction)
        if regularizer is not None and not callable(regularizer):
            raise TypeError(
                "`regularizer` must be a function of rows [n, dim], or None. "
                + received(regularizer=regularizer)
            )
        name = _checked_name(name)
        graph = graph_mode.current()
        if graph is not None:
            name = graph.unique_name(name)
        elif name == DEFAULT_NAME:
            name = _unique_default_name()
        layer_name = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)
        super().__init__(name=layer_name, trainable=bool(trainable), autocast=False)
        tf.Module.__init__(self, name="variable")
        self._name = name
        self.shared_name = shared_name
        self.initializer = initializer
        self.regularizer = regularizer
        self.checkpoint = bool(checkpoint)
        self.init_size = init_size
        self.bp_v2 = bool(bp_v2)
        self.short_file_name = bool(short_file_name)
        row = initial_rows.resolve(
            initializer,
            name=name,
            dim=spec.dim,
            value_dtype=spec.value_dtype,
            height=init_size,
        )
        if workers is None:
            router = Router(partitioner, len(spec.devices))
        else:
            router = WorkerRouter(partitioner, workers)
        tables_of = in_memory if creator is None else creator.tables
        tables = tables_of(name, spec, row, init_size, policy, router)
        self._store = ShardedTable(name, spec, tables, router, policy)
        self._start_restriction(restrict_policy)
        self._checkpointed = checkpoints.TableState(self._store)
        self._anchor: Any = None
        self._anchor_variable: tf.Variable | None = None
        self._graph_anchor: tf.Variable | None = None
        trained = bool(trainable) and spec.value_dtype.is_floating
        if graph is not None:
            graph.take_name(name)
            self._graph_anchor = graph_mode.make_anchor(self._store, trained, collections)
            self._anchor_variable = self._graph_anchor if trained else None
            if checkpoint:
                graph.register_for_savers(self._store, self._graph_anchor)
        elif trained:
            self._anchor = new_anchor(self._store)
            self._anchor_variable = tensor_variable(self._anchor)
        else:
            self._stand_in = new_stand_in(self._store)
        self.supports_jit = False  # XLA cannot run the ops
        self.built = True
        # Keras keeps its wrappers of these in the object. They refer back to it, and in such a
        # cycle the tables' memory would wait for the garbage collector.
        for wrapper in ("build", "quantize"):
            self.__dict__.pop(wrapper, None)

    @property
    def name(self) -> str:
        """The name it was given, or a unique one."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def variables(self) -> list[Any]:
        """The anchor, if there is one: in a graph of TensorFlow 1 a `tf.Variable`."""
        return super().variables if self._graph_anchor is None else [self._graph_anchor]

    @property
    def trainable_variables(self) -> list[Any]:
        """The anchor, if lookups record gradients."""
        if self._graph_anchor is None:
            return super().trainable_variables
        return [] if self._anchor_variable is None else [self._anchor_variable]

    @property
    def compute_dtype(self) -> str:
        """Dtype that `Sequential` makes its input of: the keys', or ids would become floats."""
        return str(self.key_dtype.name)

    @property
    def variable_dtype(self) -> str:
        """The same: where the two differ Keras casts weights, and here there are none to cast."""
        return self.compute_dtype

    @property
    def dtype(self) -> str:
        """Dtype of the values."""
        return str(self.value_dtype.name)

    @property
    def key_dtype(self) -> tf.DType:
        """Dtype of the keys."""
        return self._store.spec.key_dtype

    @property
    def value_dtype(self) -> tf.DType:
        """Dtype of the values."""
        return self._store.spec.value_dtype

    @property
    def dim(self) -> int:
        """Values a row."""
        return self._store.spec.dim

    @property
    def devices(self) -> list[str]:
        """The devices, one a table."""
        return list(self._store.spec.devices)

    @property
    def shard_num(self) -> int:
        """Number of tables."""
        return len(self._store.tables)

    @property
    def tables(self) -> list[Table]:
        """The tables, one a device."""
        return list(self._store.tables)

    @property
    def partition_fn(self) -> Partitioner:
        """The function that divides the keys among the tables."""
        return self._store.router.partitioner

    @property
    def resource_handle(self) -> tf.Tensor:
        """The handle of the first table."""
        return self._store.tables[0].resource_handle

    @property
    def spec(self) -> TableSpec:
        """The properties that a second request for the same name must share."""
        return self._store.spec

    if not TYPE_CHECKING:  # where every attribute would pass

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError, with what replaces a name of the reference API."""
            from de_core.base import removed_names  # which knows Variable itself

            raise removed_names.missing(
                f"{type(self).__name__!r} object", name, removed_names.VARIABLE
            )

    def __repr__(self) -> str:
        return (
            f"<de.Variable {self.name!r} {self.key_dtype.name} -> {self.value_dtype.name}"
            f"[{self.dim}] on {', '.join(self.devices)}>"
        )


def _checked_name(name: Any) -> str:
    if name is None:
        return DEFAULT_NAME
    if not isinstance(name, str) or not name:
        raise TypeError(f"`name` must be a non-empty string or None. {received(name=name)}")
    return name


def _unique_default_name() -> str:
    count = keras.backend.get_uid(DEFAULT_NAME)
    return DEFAULT_NAME if count == 1 else f"{DEFAULT_NAME}_{count - 1}"
