"""Restrict policies: they choose the rows that `Variable.restrict` keeps (`restrict_policy`)."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar, Protocol, cast

import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library
from de_core.base.types import TensorLike, WholeNumber
from de_core.tables import keys_and_values
from de_core.tables.sharded import ShardedTable


class Variable(Protocol):
    """The part of a `de.Variable` that a restrict policy uses."""

    _table: ShardedTable

    def __getattr__(self, name: str) -> Any:
        """Returns a method of the Variable, such as `export` or `remove`."""


@keras.saving.register_keras_serializable(package="de_core")
class RestrictPolicy:
    """Chooses the rows that `Variable.restrict` keeps. Base class of all restrict policies.

    Pass a subclass to `Variable`, not an object: the Variable instantiates it. A subclass overrides
    `apply_update` and `apply_restriction`. Each optimizer step calls `apply_update` with the keys
    it wrote. Both return an operation, or None in eager mode. A policy may store its status
    anywhere, for example in another `Variable`, and must save it itself. A policy with `columns`
    need not override `apply_update`: every write updates the columns.

    Register the subclass with `keras.saving.register_keras_serializable` if you save models with
    it. Then the files contain its registered name. Otherwise they contain its module and class
    name, and the class must stay in that module.

    Args:
        var: The Variable. The policy does not keep it alive.

    Example:
    >>> import de_core as de
    >>> class Smallest(de.RestrictPolicy):
    ...     def apply_update(self, ids):
    ...         return None
    ...     def apply_restriction(self, num_reserved, **kwargs):
    ...         keys, _ = self.var.export()
    ...         return self.var.remove(tf.sort(keys)[num_reserved:])
    >>> users = de.Variable(dim=1, restrict_policy=Smallest)
    >>> users.upsert([3, 1, 2], [[3.0], [1.0], [2.0]])
    >>> users.restrict(2)
    >>> sorted(users.export()[0].numpy().tolist())
    [1, 2]
    """

    #: Metadata columns that the table stores for the policy and updates with every write.
    columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, var: Variable) -> None:
        self.var = var

    @property
    def var(self) -> Variable:
        """The Variable that the policy restricts."""
        var = self._var()
        if var is None:
            raise ReferenceError("The Variable of this restrict policy was deleted.")
        return var

    @var.setter
    def var(self, var: Variable) -> None:
        self._var = weakref.ref(var)

    @classmethod
    def needs_apply_update(cls) -> bool:
        """Returns whether optimizer steps call `apply_update`. False if `columns` are enough."""
        inherited = (RestrictPolicy.apply_update, _ColumnPolicy.apply_update)
        return not cls.columns or cls.apply_update not in inherited

    def get_config(self) -> dict[str, Any]:
        """Returns an empty dict. Keras can register only classes that have this method."""
        return {}

    def apply_update(self, ids: TensorLike) -> tf.Operation | None:
        """Records that keys were used.

        Args:
            ids: Tensor of the key dtype, any shape.
        """
        raise self._missing("apply_update", ids=ids)

    def apply_restriction(self, num_reserved: WholeNumber, **kwargs: Any) -> tf.Operation | None:
        """Removes rows until `num_reserved` are left.

        Args:
            num_reserved: Number of rows to keep in the whole table.
            **kwargs: All other arguments of `Variable.restrict`.
        """
        raise self._missing("apply_restriction", num_reserved=num_reserved, **kwargs)

    @property
    def status(self) -> Any:
        """The policy's data about the rows."""
        raise self._missing("status")

    def _missing(self, what: str, **arguments: Any) -> NotImplementedError:
        return NotImplementedError(
            f"A restrict policy must define `{what}`. "
            + received(restrict_policy=type(self), **arguments)
        )


def policy_named(name: str) -> type[RestrictPolicy]:
    """Returns the policy class that has this name in configurations.

    Raises:
        ValueError: No class of this name is defined in this process.
    """
    registered = keras.saving.get_registered_object(name)
    if registered is not None:
        return cast("type[RestrictPolicy]", registered)
    classes: list[type[RestrictPolicy]] = [RestrictPolicy]
    for each in classes:
        if _path_of(each) == name:
            return each
        classes.extend(each.__subclasses__())
    raise ValueError(
        "The module that defines a restrict policy must be imported before it is loaded. "
        + received(restrict_policy=name)
    )


def name_of_policy(policy: type[RestrictPolicy]) -> str:
    """Returns the name of a policy class in configurations.

    The name is the registered one, such as "de_core>TimestampRestrictPolicy", or the path of a
    class that is not registered.
    """
    name = str(keras.saving.get_registered_name(policy))
    return _path_of(policy) if name == policy.__name__ else name


def _path_of(policy: type[RestrictPolicy]) -> str:
    return f"{policy.__module__}.{policy.__qualname__}"


class RowStatus:
    """A metadata column of a Variable's rows. It is saved and removed with the rows.

    Args:
        var: The Variable.
        column: "time", "step", "uses" or "score".
    """

    def __init__(self, var: Variable, column: str) -> None:
        self._table = var._table
        self.column = column

    @no_autograph
    def lookup(self, keys: TensorLike, name: str | None = None) -> tf.Tensor:
        """Reads the column.

        Args:
            keys: Tensor of the key dtype, any shape.
            name: Name of the operation.

        Returns:
            int64, keys.shape + [1]; 0 for a key without a row.
        """
        with tf.name_scope(name or "lookup_status"):
            keys = keys_and_values.checked_keys(keys, self._table)
            return self._table.find_slot(keys, f"de/{self.column}", 1, tf.int64)

    @no_autograph
    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and the column's values, int64 [n, 1]."""
        with tf.name_scope(name or "export_status"):
            return self._table.export(self.column)

    @no_autograph
    def size(self, index: int | None = None, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows in shard `index` or in the whole table, an int64 scalar."""
        with tf.name_scope(name or "size_of_status"):
            return self._table.size(index)


class _ColumnPolicy(RestrictPolicy):
    """Keeps the rows with the highest values in a metadata column."""

    def __init__(self, var: Variable) -> None:
        super().__init__(var)
        self._status = RowStatus(var, self.columns[0])

    def apply_update(self, ids: TensorLike) -> tf.Operation | None:
        """Marks rows as used now. Ignores keys without a row. Writes mark their rows anyway.

        Args:
            ids: Tensor of the key dtype, any shape.
        """
        keys = keys_and_values.checked_keys(ids, self.var._table)
        return self.var._table.write(library.de_table_touch, (tf.reshape(keys, [-1]),))

    def apply_restriction(self, num_reserved: WholeNumber, **kwargs: Any) -> tf.Operation | None:
        """Keeps the `num_reserved` rows with the highest values. The hash of the key breaks ties.

        Args:
            num_reserved: Exact number of rows to keep in the whole table.
            **kwargs: `trigger`: does nothing unless there are more rows than this. Defaults to
                `num_reserved`.

        Raises:
            TypeError: An argument is unknown or not a whole number.
            ValueError: An argument is negative.
        """
        reserved, most = row_counts(num_reserved, **kwargs)
        table, column = self.var._table, self.columns[0]
        table.router.require_whole("`restrict`", "Make it with an `eviction` policy.")
        expired = table.each(library.de_table_evict_expired) if table.policy.expires else None
        with tf.control_dependencies([] if expired is None else [expired]):
            total = table.size()
        reserved = tf.where(total > most, reserved, tf.constant(tf.int64.max, tf.int64))
        candidates = [
            shard.run(library.de_table_rank_candidates, total, reserved, column=column)
            for shard in table.tables
        ]
        ranks, hashes = (tf.concat(list(parts), 0) for parts in zip(*candidates, strict=True))
        kept = library.de_first_kept(ranks, hashes, total, reserved)
        return table.each(library.de_table_evict_below, kept, column=column)

    @property
    def status(self) -> RowStatus:
        """The column that ranks the rows."""
        return self._status


@keras.saving.register_keras_serializable(package="de_core")
class TimestampRestrictPolicy(_ColumnPolicy):
    """Keeps the rows that were written last.

    `status` holds the time of the last write in microseconds since 1970, as int64. The values of
    successive writes always increase, even if two writes happen in the same microsecond.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, restrict_policy=de.TimestampRestrictPolicy)
    >>> for key in (1, 2, 3, 1):
    ...     users.upsert([key], [[0.5]])
    >>> users.restrict(2)
    >>> sorted(users.export()[0].numpy().tolist())
    [1, 3]
    """

    columns: ClassVar[tuple[str, ...]] = ("time",)


@keras.saving.register_keras_serializable(package="de_core")
class FrequencyRestrictPolicy(_ColumnPolicy):
    """Keeps the rows that were written most often.

    `status` holds the counts as int64. An optimizer step counts one write per row. `upsert` and
    similar methods count each occurrence of the key.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, restrict_policy=de.FrequencyRestrictPolicy)
    >>> users.upsert([1, 2, 2, 3, 3, 3], [[0.0]] * 6)
    >>> users.restrict_policy.status.lookup([1, 2, 3]).numpy().ravel().tolist()
    [1, 2, 3]
    >>> users.restrict(1, trigger=2)
    >>> users.export()[0].numpy().tolist()
    [3]
    """

    columns: ClassVar[tuple[str, ...]] = ("uses",)


def row_counts(num_reserved: WholeNumber, **kwargs: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the `num_reserved` and the `trigger` of a restriction, int64 scalars.

    Raises:
        TypeError: An argument is unknown or not a whole number.
        ValueError: An argument is negative.
    """
    trigger = kwargs.pop("trigger", None)
    trigger = num_reserved if trigger is None else trigger
    if kwargs:
        raise TypeError(f"`restrict` takes `num_reserved` and `trigger`. {received(**kwargs)}")
    return _row_count("num_reserved", num_reserved), _row_count("trigger", trigger)


def _row_count(name: str, value: Any) -> tf.Tensor:
    if tf.is_tensor(value):
        if not value.dtype.is_integer or value.shape.rank not in (None, 0):
            raise TypeError(f"`{name}` must be an integer scalar. {received(**{name: value})}")
        if not isinstance(value, tf.__internal__.EagerTensor):
            return tf.cast(value, tf.int64)
        value = int(value)
    check_integer(name, value, 0, 2**63 - 1)
    return tf.constant(int(value), tf.int64)
