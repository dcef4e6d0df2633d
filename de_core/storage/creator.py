"""The `kv_creator` argument: chooses a storage for the rows instead of main memory."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.storage.row_store import RowStore
from de_core.storage.table import StoredTable
from de_core.tables.initial_rows import InitialRow
from de_core.tables.policy import TablePolicy
from de_core.tables.router import Router
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

#: True while new Variables ignore their `kv_creator`, so that a loaded model changes no storage.
all_in_memory = ContextVar("all_in_memory", default=False)


class KVCreator:
    """Chooses a Variable's storage (its argument `kv_creator`). Subclass it to add a storage.

    Override `create` and return your own `RowStore`, which stores rows as bytes by key. All methods
    of a Variable, every optimizer, checkpoints and exports work with it.

    Args:
        config: The storage's configuration, defined by the subclass.
        saver: Ignored. Checkpoints always write rows to files beside the checkpoint.

    Example: `examples/sqlite_storage.py`.
    """

    #: True if the creator selects the tables in main memory, which are also the default.
    in_memory = False

    def __init__(self, config: Any = None, saver: object = None) -> None:
        self.config = config
        self.saver = saver

    def create(
        self,
        key_dtype: tf.DType | None = None,
        value_dtype: tf.DType | None = None,
        default_value: None = None,
        name: str | None = None,
        checkpoint: None = None,
        init_size: int | None = None,
        config: Any = None,
        device: str | None = None,
    ) -> RowStore:
        """Opens the rows of one table, including rows that an earlier process wrote.

        Args:
            key_dtype: The table's key dtype.
            value_dtype: The table's value dtype.
            default_value: Always None, because the table computes initial rows itself.
            name: The table's name. The storage finds the rows of earlier processes by it.
            checkpoint: Always None, because the table saves rows itself.
            init_size: Expected number of rows.
            config: The creator's configuration.
            device: The device where this process uses the table.
        """
        raise NotImplementedError(
            "A de.KVCreator must define `create`, which returns a de.RowStore. "
            + received(kv_creator=type(self), name=name)
        )

    def tables(
        self,
        name: str,
        spec: TableSpec,
        initial: InitialRow,
        init_size: int,
        policy: TablePolicy,
        router: Router,
    ) -> list[Table]:
        """Creates the only shard of a Variable's table, over the result of `create`.

        Args:
            name: The Variable's name.
            spec: Dtypes, dim and devices.
            initial: The row that a lookup returns for a key without a row.
            init_size: Expected number of rows.
            policy: Must be empty.
            router: Gives the shard's name.

        Raises:
            TypeError: `create` did not return a `RowStore`.
            ValueError: There is more than one device.
            NotImplementedError: A policy is set, or slots are bfloat16.
        """
        if len(spec.devices) > 1:
            raise ValueError(
                "With this `kv_creator`, `devices` must be None or one device, because its storage "
                f"divides the keys itself. {received(devices=list(spec.devices))}"
            )
        if policy != TablePolicy():
            raise NotImplementedError(
                "`admission`, `eviction` and the restrict policies of the library need rows in "
                "main memory. "
                + received(policy=policy.text(0, 1), kv_creator=self)
                + " Leave out the policy or `kv_creator`."
            )
        if spec.slot_dtype == tf.bfloat16:
            raise NotImplementedError(
                "`slot_dtype` of tables in a storage must be None. "
                + received(slot_dtype=spec.slot_dtype.name, kv_creator=self)
                + " Leave out `slot_dtype` or `kv_creator`."
            )
        store = self.create(
            key_dtype=spec.key_dtype,
            value_dtype=spec.value_dtype,
            name=name,
            init_size=init_size,
            config=self.config,
            device=spec.devices[0],
        )
        if not isinstance(store, RowStore):
            raise TypeError(f"`create` must return a de.RowStore. {received(created=store)}")
        own, about = router.table_name(name, 0), router.metadata(name, 0)
        return [StoredTable(own, spec, initial, spec.devices[0], store, about)]


def storage_creator(kv_creator: KVCreator | None) -> KVCreator | None:
    """Returns the creator of the storage that `kv_creator` selects, or None for main memory.

    Raises:
        TypeError: `kv_creator` is not a `KVCreator`.
    """
    if kv_creator is None or all_in_memory.get() or getattr(kv_creator, "in_memory", False):
        return None
    if not isinstance(kv_creator, KVCreator):
        raise TypeError(f"`kv_creator` must be a de.KVCreator. {received(kv_creator=kv_creator)}")
    return kv_creator
