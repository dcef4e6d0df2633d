"""Restricting a `Variable` to its best rows: the policies of its argument `restrict_policy`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar, cast

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.base.ops import library
from de_core.base.plain_python import plain_python
from de_core.tables import keys_and_values
from de_core.tables.admission import check_integer
from de_core.tables.sharded import ShardedTable
from de_core.tables.table import Table

if TYPE_CHECKING:
    from de_core.variable.variable import Variable


@keras.saving.register_keras_serializable(package="de_core")
class RestrictPolicy:
    """The rule by which `Variable.restrict` chooses the rows that stay.

    Pass a subclass to `Variable`, not an object: the Variable makes its own. A subclass of yours
    overrides `apply_update`, which each optimizer step calls with the keys it wrote, and
    `apply_restriction`; both return an operation, or None in eager mode. It keeps its status where
    it likes, such as in a `Variable` of its own, and saves that itself. One with `columns` need not
    override `apply_update`: every write keeps those.

    Register a subclass by `keras.saving.register_keras_serializable` if you save models with it.
    Their files then hold its registered name. Otherwise they hold its module and class name, and
    the class must stay in that module.

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

    #: Metadata columns that the tables keep for the policy, in the pass that writes the value.
    columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, var: Variable) -> None:
        self._var = weakref.ref(var)

    @property
    def var(self) -> Variable:
        """The Variable that is restricted."""
        var = self._var()
        if var is None:
            raise ReferenceError("The Variable of this restrict policy is gone.")
        return var

    @classmethod
    def hears_of_steps(cls) -> bool:
        """Returns whether optimizer steps call `apply_update`: not where columns do its work."""
        inherited = (RestrictPolicy.apply_update, _ColumnPolicy.apply_update)
        return not cls.columns or cls.apply_update not in inherited

    def get_config(self) -> dict[str, Any]:
        """Returns an empty dict: the class says it all. Keras registers no class without this."""
        return {}

    def apply_update(self, ids: Any) -> Any:
        """Notes that keys were used.

        Args:
            ids: Of the key dtype, any shape.
        """
        raise self._missing("apply_update", ids=ids)

    def apply_restriction(self, num_reserved: Any, **kwargs: Any) -> Any:
        """Removes rows until `num_reserved` are left.

        Args:
            num_reserved: Rows that stay, of all tables together.
            **kwargs: What `Variable.restrict` was given besides.
        """
        raise self._missing("apply_restriction", num_reserved=num_reserved, **kwargs)

    @property
    def status(self) -> Any:
        """What the policy knows of the rows."""
        raise self._missing("status")

    def _missing(self, what: str, **arguments: Any) -> NotImplementedError:
        return NotImplementedError(
            f"A restrict policy must define `{what}`. "
            + received(restrict_policy=type(self), **arguments)
        )


def policy_named(name: str) -> type[RestrictPolicy]:
    """Returns the policy class that `name_of_policy` gave this name.

    Raises:
        ValueError: There is none in this process.
    """
    if name.startswith("de_core."):  # older files keep the module of the library's own policies
        name = f"de_core>{name.rpartition('.')[2]}"
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
    """Returns the name under which configurations keep a policy class.

    The name is the registered one, such as "de_core>TimestampRestrictPolicy", or the path of a
    class that is not registered.
    """
    name = str(keras.saving.get_registered_name(policy))
    return _path_of(policy) if name == policy.__name__ else name


def _path_of(policy: type[RestrictPolicy]) -> str:
    return f"{policy.__module__}.{policy.__qualname__}"


class RowStatus:
    """A metadata column of a Variable's rows; it is part of them, so it comes and goes with them.

    Args:
        var: The Variable.
        column: "time", "step", "uses" or "score".
    """

    def __init__(self, var: Variable, column: str) -> None:
        self._var = weakref.ref(var)
        self._store = var._store
        self.column = column

    @plain_python
    def lookup(self, keys: Any, name: str | None = None) -> tf.Tensor:
        """Reads the column.

        Args:
            keys: Of the key dtype, any shape.
            name: Of the operation.

        Returns:
            int64, keys.shape + [1]; 0 for a key without a row.
        """
        var = self._var()
        if var is None:
            raise ReferenceError("The Variable of this status is gone.")
        with tf.name_scope(name or "lookup_status"):
            keys = keys_and_values.checked_keys(keys, var)
            return tf.expand_dims(read_column(self._store, keys, self.column), -1)

    @plain_python
    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and the column's values, int64 [n, 1]."""
        with tf.name_scope(name or "export_status"):
            return export_column(self._store, self.column)

    @plain_python
    def size(self, index: int | None = None, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar; of one table where `index` is given."""
        with tf.name_scope(name or "size_of_status"):
            return self._store.size(index)


class _ColumnPolicy(RestrictPolicy):
    """A rule by a column that the tables keep: the rows with the highest values stay."""

    def __init__(self, var: Variable) -> None:
        super().__init__(var)
        self._status = RowStatus(var, self.columns[0])

    def apply_update(self, ids: Any) -> Any:
        """Marks rows as used now. Writes do that by themselves; keys without a row are ignored.

        Args:
            ids: Of the key dtype, any shape.
        """
        keys = keys_and_values.checked_keys(ids, self.var)
        return self.var._store.write(library.de_table_touch, (tf.reshape(keys, [-1]),))

    def apply_restriction(self, num_reserved: Any, **kwargs: Any) -> Any:
        """Removes all but the `num_reserved` best rows, equal ones in the order of their hash.

        Args:
            num_reserved: Rows that stay, exactly, of all tables together.
            **kwargs: `trigger`, the number of rows above which anything is done; `num_reserved` if
                it is not given.

        Raises:
            TypeError: Another argument is given, or one is no whole number.
            ValueError: An argument is negative.
        """
        trigger = kwargs.pop("trigger", num_reserved)
        if kwargs:
            raise TypeError(f"`restrict` takes `num_reserved` and `trigger`. {received(**kwargs)}")
        reserved = _row_count("num_reserved", num_reserved)
        self.var._store.router.require_whole("`restrict`", "Make it with an `eviction` policy.")
        return keep_best(self.var._store, self.columns[0], reserved, _row_count("trigger", trigger))

    @property
    def status(self) -> RowStatus:
        """The column that ranks the rows."""
        return self._status


@keras.saving.register_keras_serializable(package="de_core")
class TimestampRestrictPolicy(_ColumnPolicy):
    """The rows that were written last stay.

    `status` holds microseconds since 1970 in int64. They rise from write to write, so that the
    order of two writes is kept however soon one follows the other.

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
    """The rows that were written most often stay.

    `status` holds the counts in int64: one for each optimizer step that wrote the row, one for each
    occurrence in `upsert` and the like.

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


def _row_count(name: str, value: Any) -> tf.Tensor:
    if tf.is_tensor(value):
        if not value.dtype.is_integer or value.shape.rank not in (None, 0):
            raise TypeError(f"`{name}` must be an integer scalar. {received(**{name: value})}")
        return tf.cast(value, tf.int64)
    check_integer(name, value, 0, 2**63 - 1)
    return tf.constant(int(value), tf.int64)


def keep_best(store: ShardedTable, column: str, reserved: tf.Tensor, trigger: tf.Tensor) -> Any:
    """Removes all but the rows that rank highest, over all tables, if there are too many.

    Args:
        store: The tables.
        column: That ranks them.
        reserved: int64 scalar; rows that stay.
        trigger: int64 scalar; nothing is done for so many rows or fewer.
    """
    expired = store.evict_expired() if store.policy.expires else None
    with tf.control_dependencies([] if expired is None else [expired]):
        total = store.size()
    reserved = tf.where(total > trigger, reserved, tf.constant(tf.int64.max, tf.int64))
    candidates = [
        table.run(library.de_table_rank_candidates, total, reserved, column=column)
        for table in store.tables
    ]
    ranks, hashes = (tf.concat(list(parts), 0) for parts in zip(*candidates, strict=True))
    kept = library.de_first_kept(ranks, hashes, total, reserved)
    return store.each(lambda table: table.run(library.de_table_evict_below, kept, column=column))


def read_column(store: ShardedTable, keys: tf.Tensor, column: str) -> tf.Tensor:
    """Returns a metadata column of the rows of `keys`, int64 of their shape; 0 without a row."""

    def read(table: Table, part: tf.Tensor) -> tuple[tf.Tensor]:
        return (table.run(library.de_table_read_column, part, column=column)[0],)

    if store.router.count == 1:
        return read(store.tables[0], keys)[0]
    flat = tf.reshape(keys, [-1])
    values = store.router.gather(flat, lambda index, part: read(store.tables[index], part))[0]
    return tf.ensure_shape(tf.reshape(values, tf.shape(keys)), keys.shape)


def export_column(store: ShardedTable, column: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns all keys [n] and a metadata column, int64 [n, 1]."""
    parts = [table.export(f"de/{column}", tf.int64) for table in store.tables]
    keys, values = zip(*parts, strict=True)
    return tf.concat(list(keys), 0), tf.concat(list(values), 0)
