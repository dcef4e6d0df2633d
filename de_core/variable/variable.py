"""`Variable`: an embedding table that grows while it is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from de_core import checkpoint as checkpoints
from de_core.base import removed_names
from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.base.types import DTypeLike, InitializerLike, TensorLike, TrainedVariable
from de_core.checkpoint import tfra_refusal, weights_file
from de_core.checkpoint.file_system import FileSystem
from de_core.distributed import strategy
from de_core.storage.creator import KVCreator, storage_creator
from de_core.tables.admission import Admission
from de_core.tables.arrow import ArrowRows
from de_core.tables.eviction import Eviction
from de_core.tables.restrict import RestrictPolicy
from de_core.tables.router import Partitioner, default_partition_fn
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table
from de_core.tables.tier import DiskTier
from de_core.variable import own_optimizer
from de_core.variable.anchor import new_anchor, tensor_variable
from de_core.variable.graph import graph_mode, graph_saver
from de_core.variable.inspection import Inspection
from de_core.variable.new_table import DEFAULT_NAME, new_table, own_name
from de_core.variable.own_optimizer import OptimizerLike, OwnOptimizer
from de_core.variable.retention import Retention, checked_policy
from de_core.variable.rows import Rows
from de_core.variable.slots import Slots

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.\-]")  # in the name of a layer
_USE_CHECKPOINTS = "Use tf.train.Checkpoint or de.checkpoint.save."


class Variable(
    Rows, Inspection, Retention, Slots, ArrowRows, FileSystem, keras.layers.Layer, tf.Module
):
    """An embedding table: maps each key to a row [dim]. It grows as training writes new keys.

    A lookup of a key without a row returns the key's initial row, which depends only on the
    initializer, its seed and the key. A lookup writes nothing. `upsert` and optimizer steps store
    rows.

    A Variable is a `tf.Module` and a Keras layer. Every module, layer and model that holds a
    Variable trains, saves and restores it. Its only `tf.Variable` is an empty *anchor* [0, dim],
    which stands for the rows. The gradient with respect to the anchor is a `tf.IndexedSlices`,
    whose indices are the ids that were looked up.

    All methods are thread-safe. Each row is read and written atomically, but a batch is not.

    Args:
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Dtype of the rows. Only floating-point rows are trainable.
        dim: Values per row, 1 to 4096.
        devices: Device names. Each device holds one shard of the table. None for one shard on the
            CPU, or in the scope of a `ParameterServerStrategy` for one shard per server.
        partitioner: `f(keys [n], shard_num)` that returns the shard of each key, in
            [0, shard_num). Not called if there is only one shard.
        shared_name: Not used.
        name: Name of the table and of its signatures in an export. It seeds the initializer.
            Variables of equal names do not share rows; use `de.get_variable` to share.
        initializer: None for zeros; a number; an array, list or tensor of shape [] or [dim]; a
            Keras or TensorFlow initializer; or a callable `f(shape, dtype)`. A callable is called
            once; initial rows then follow the distribution of each column of its result. Numbers
            are rounded to float32, but random float64 rows are drawn in float64. A
            `VarianceScaling` (Glorot, He, Lecun) has the variance of a matrix [init_size, dim].
        trainable: Whether lookups record gradients.
        checkpoint: Whether checkpoints include the rows.
        init_size: Number of rows to reserve memory for, divided among the shards.
        kv_creator: The storage: None for main memory, a `RedisTableCreator`, or your own
            `KVCreator`. A storage finds its rows by `name`.
        restrict_policy: The subclass of `de.RestrictPolicy` that chooses what `restrict` keeps.
        bp_v2: Ignored, for compatibility. Concurrent updates of a row always add up.
        regularizer: `f(rows [n, dim])` that returns a penalty or None. In graphs, each lookup adds
            the penalty on its distinct rows to the collection REGULARIZATION_LOSSES, except in a
            branch or a loop; see `regularization_loss`.
        collections: Collections that the anchor joins in a TensorFlow 1 graph; None for
            GLOBAL_VARIABLES. A trainable anchor also joins TRAINABLE_VARIABLES.
        admission: Decides which keys get a row, for example `de.AdmissionCount(2)`; None for all
            keys that are written.
        eviction: Decides which rows the table removes, for example
            `de.EvictionLRU(max_rows=10**6)`. One policy, or a list of a bound and a time to live.
        optimizer: The table's own Keras 3 optimizer, its name or its configuration. None to train
            the table by a `de.DynamicEmbeddingOptimizer`.
        tier: Where rows are that do not fit into memory: a `de.DiskTier`. None for memory alone.
        slot_dtype: `tf.bfloat16` for optimizer slots of half the size; None for full precision.

    In a TensorFlow 1 graph, the session creates the table and a Saver saves it. The anchor's
    initializer, which `tf.compat.v1.global_variables_initializer` runs, empties the table.

    Raises:
        TypeError: An argument has a wrong type or dtype.
        ValueError: `dim`, `devices`, `init_size` or `initializer` is out of range, or the
            `initializer` is a `VarianceScaling` and `init_size` is 0.
        NotImplementedError: The storage of `kv_creator` does not support another argument.

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
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        dim: int = 1,
        devices: Sequence[str] | None = None,
        partitioner: Partitioner | None = default_partition_fn,
        shared_name: str | None = None,
        name: str | None = DEFAULT_NAME,
        initializer: InitializerLike = None,
        trainable: bool = True,
        checkpoint: bool = True,
        init_size: int = 0,
        kv_creator: KVCreator | None = None,
        restrict_policy: type[RestrictPolicy] | None = None,
        bp_v2: bool = False,
        *,
        regularizer: Callable[[tf.Tensor], tf.Tensor | None] | None = None,
        collections: Sequence[str] | None = None,
        admission: Admission | None = None,
        eviction: Eviction | Sequence[Eviction] | None = None,
        optimizer: OptimizerLike | None = None,
        tier: DiskTier | None = None,
        slot_dtype: DTypeLike | None = None,
    ) -> None:
        if devices is None and storage_creator(kv_creator) is None:
            devices = strategy.devices_of_the_scope()
        spec = TableSpec.checked(key_dtype, value_dtype, dim, devices, tier, slot_dtype)
        policy = checked_policy(restrict_policy, admission, eviction)
        if regularizer is not None and not callable(regularizer):
            needed = "`regularizer` must be a function of rows [n, dim], or None. "
            raise TypeError(needed + received(regularizer=regularizer))
        graph = graph_mode.current()
        name = own_name(name, graph)
        table = new_table(
            name,
            spec,
            policy,
            partitioner=partitioner,
            initializer=initializer,
            init_size=init_size,
            kv_creator=kv_creator,
        )
        table.keeps_rows = self._keeps_rows
        super().__init__(name=_FORBIDDEN.sub("_", name), trainable=bool(trainable), autocast=False)
        tf.Module.__init__(self, name="variable")
        self._name = name
        self.shared_name = shared_name
        self.initializer = initializer
        self.checkpoint = bool(checkpoint)
        self.init_size = int(init_size)
        self.bp_v2 = bool(bp_v2)
        self.supports_jit = False  # XLA cannot run the ops
        self._table = table
        self._checkpointed = checkpoints.TableState(table)
        trained = bool(trainable) and spec.value_dtype.is_floating
        self._graph_anchor: tf.Variable | None = None
        own = own_optimizer.new(optimizer, table, in_a_graph=graph is not None)
        if graph is None:
            anchor = self._anchor = new_anchor(table, trained, own)  # a weight that Keras tracks
        else:
            anchor = self._graph_anchor = graph.add(name, table, trained, collections, checkpoint)
        # Keras and TensorFlow must not track these: the anchor is a weight already, and a
        # regularizer that is a layer has weights of its own.
        self.__dict__["_regularizer"] = regularizer
        self.__dict__["_trained"] = anchor if trained else None
        self.__dict__["_watched"] = tensor_variable(anchor) if trained else None
        # Create the policy last: its constructor may use this Variable.
        self._restriction = None if restrict_policy is None else restrict_policy(self)
        if self._restriction is not None and self._restriction.needs_apply_update():
            # Call the policy after each update. Other policies need no call: they have only
            # metadata columns, which every write updates.
            table.on_update = self._restriction.apply_update
        self.built = True
        # Keras stores wrappers of these methods, which refer to the object. This cycle would keep
        # the table's memory until the garbage collector runs.
        for wrapper in ("build", "quantize"):
            self.__dict__.pop(wrapper, None)

    _keeps_rows = False  # True if a graph's initializer must not empty the table

    def call(self, keys: TensorLike) -> tf.Tensor:
        """Looks up keys. So a Variable can be the first layer of a Keras model."""
        return self.lookup(keys)

    @property
    def optimizer(self) -> OwnOptimizer | None:
        """The table's own optimizer, with its learning rate, `iterations` and slots, or None."""
        anchor = self._anchor if self._graph_anchor is None else None
        return own_optimizer.optimizer_of(anchor)

    @property
    def regularizer(self) -> Callable[[tf.Tensor], tf.Tensor | None] | None:
        """The function that returns the penalty on rows, or None."""
        return self._regularizer

    @property
    def name(self) -> str:
        """The Variable's name. A default name, and any name in a graph, is made unique."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def variables(self) -> list[TrainedVariable]:
        """A list with the anchor. In a TensorFlow 1 graph the anchor is a `tf.Variable`."""
        return super().variables if self._graph_anchor is None else [self._graph_anchor]

    @property
    def trainable_variables(self) -> list[TrainedVariable]:
        """A list with the anchor if lookups record gradients, otherwise an empty list."""
        if self._graph_anchor is None:
            return super().trainable_variables
        return [] if self._anchor_variable is None else [self._graph_anchor]

    @property
    def compute_dtype(self) -> str:
        """The key dtype. `Sequential` gives its input this dtype, and ids must not be floats."""
        return str(self.key_dtype.name)

    @property
    def variable_dtype(self) -> str:
        """Equal to `compute_dtype`. Keras would cast weights if the two differed."""
        return self.compute_dtype

    @property
    def dtype(self) -> str:
        """Dtype of the values."""
        return str(self.value_dtype.name)

    @property
    def key_dtype(self) -> tf.DType:
        """Dtype of the keys."""
        return self._table.spec.key_dtype

    @property
    def value_dtype(self) -> tf.DType:
        """Dtype of the values."""
        return self._table.spec.value_dtype

    @property
    def dim(self) -> int:
        """Values per row."""
        return self._table.spec.dim

    @property
    def devices(self) -> list[str]:
        """The device of each shard."""
        return list(self._table.spec.devices)

    @property
    def shard_num(self) -> int:
        """Number of shards."""
        return len(self._table.tables)

    @property
    def tables(self) -> list[Table]:
        """The shards, one per device."""
        return list(self._table.tables)

    @property
    def partition_fn(self) -> Partitioner:
        """The function that assigns keys to shards."""
        return self._table.router.partitioner

    @property
    def resource_handle(self) -> tf.Tensor:
        """The handle of the first shard."""
        return self._table.tables[0].resource_handle

    def get_config(self) -> dict[str, Any]:
        """Raises NotImplementedError: Keras can neither copy, pickle nor rebuild a Variable."""
        raise NotImplementedError(
            "A `de.Variable` must not be copied, pickled or rebuilt from a config. Received: table "
            f"{self.name!r}. Use de.layers.Embedding in a model that is copied or saved by Keras, "
            "or copy the rows: new.upsert(*old.export())."
        )

    def save_own_variables(self, store: Any) -> None:
        """Writes rows and slots into a Keras weights file, in pieces of a few MiB."""
        if self.checkpoint:
            self._table.router.require_whole("A file of weights", _USE_CHECKPOINTS)
            weights_file.write_pieces(self._table, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads what `save_own_variables` wrote, into any number of shards."""
        if self.checkpoint:
            self._table.router.require_whole("A file of weights", _USE_CHECKPOINTS)
            weights_file.read_pieces(self._table, store)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """Returns what a TensorFlow 1 Saver saves that has this Variable in its `var_list`.

        Raises:
            ValueError: The Saver is used in eager mode, or its `var_list` is a dict.
        """
        if tf.executing_eagerly():
            graph_saver.refuse_in_eager_mode(self._table.name)
            return super()._gather_saveables_for_checkpoint()
        return graph_saver.saveables() or super()._gather_saveables_for_checkpoint()

    def _checkpoint_adapter(self, path: str | None) -> None:
        """Restores the rows of a SavedModel. TensorFlow calls it before it restores any child.

        Args:
            path: The checkpoint's prefix.

        Raises:
            ValueError: The checkpoint holds tables of tfra.
        """
        tfra_refusal.refuse(path)
        if self.checkpoint and path is not None:
            weights_file.restore_saved_model(self._table, path)

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        """Returns the objects that TensorFlow saves: rows in a checkpoint, shards as assets."""
        if save_type != "savedmodel":
            own = {} if self.optimizer is None else {"optimizer": self.optimizer}
            return {"rows": self._checkpointed, **own} if self.checkpoint else {}
        children = self._table.in_saved_model()
        if self._anchor_variable is not None:
            children["anchor"] = self._anchor_variable
        return children

    if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute name

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError. Its message says what replaces a name of the reference API."""
            raise removed_names.missing(
                f"{type(self).__name__!r} object", name, removed_names.VARIABLE
            )

    def __repr__(self) -> str:
        return (
            f"<de.Variable {self.name!r} {self.key_dtype.name} -> {self.value_dtype.name}"
            f"[{self.dim}] on {', '.join(self.devices)}>"
        )
