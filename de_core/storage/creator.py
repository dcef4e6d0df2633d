"""The `kv_creator` argument: which storage keeps the rows. Without it that is main memory."""

from __future__ import annotations

from typing import Any

from de_core.base.checks import received
from de_core.storage.row_store import RowStore
from de_core.storage.table import StoredTable
from de_core.tables.initial_rows import InitialRow
from de_core.tables.policy import TablePolicy
from de_core.tables.router import Router
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table


class KVCreator:
    """Where a Variable keeps its rows: its argument `kv_creator`, and the way to add a storage.

    A subclass of yours overrides `create` and returns a `RowStore` of yours: rows of bytes by key.
    All verbs of a Variable, every optimizer, checkpoints and exports work over it.

    Args:
        config: Of the storage; yours to define.
        saver: Where checkpoints keep the rows; files beside the checkpoint in any case.

    Example: `examples/sqlite_storage.py`.
    """

    def __init__(self, config: Any = None, saver: Any = None) -> None:
        self.config = config
        self.saver = saver

    def create(
        self,
        key_dtype: Any = None,
        value_dtype: Any = None,
        default_value: Any = None,
        name: str | None = None,
        checkpoint: Any = None,
        init_size: int | None = None,
        config: Any = None,
        device: str | None = None,
    ) -> RowStore:
        """Opens the rows of one table, those of an earlier process if it has any.

        Args:
            key_dtype: Of the table.
            value_dtype: Of the table.
            default_value: None: the table makes initial rows itself.
            name: Of the table, under which the storage finds its rows again.
            checkpoint: None: the table saves rows itself.
            init_size: Rows to expect.
            config: That of the creator.
            device: Where the process uses the table.
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
        """Makes the table of a Variable over what `create` returns.

        Args:
            name: Of the Variable.
            spec: Dtypes, dim and devices.
            initial: What a key without a row reads as.
            init_size: Rows to expect.
            policy: Must ask for nothing.
            router: Names the table.

        Raises:
            TypeError: `create` returned no `RowStore`.
            ValueError: There is more than one device.
            NotImplementedError: There is a policy.
        """
        if len(spec.devices) > 1:
            raise ValueError(
                "`devices` must be None or one device with this `kv_creator`: its storage divides "
                f"the keys itself. {received(devices=list(spec.devices))}"
            )
        if policy != TablePolicy():
            raise NotImplementedError(
                "`admission`, `eviction` and the restrict policies of the library need rows in "
                "main memory: leave them out, or `kv_creator`. "
                + received(policy=policy.text(0, 1), kv_creator=self)
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
        own, about = router.table_name(name, 0), router.about(name, 0)
        return [StoredTable(own, spec, initial, spec.devices[0], store, about)]


class CuckooHashTableConfig:
    """Nothing to configure: a table grows as it fills, and `init_size` makes room at once."""


class CuckooHashTableCreator(KVCreator):
    """Asks for the table in main memory, which every Variable has without it."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that it was made with."""
        return {"config": self.config, "saver": self.saver}


class FileSystemSaver:
    """Asks for rows in files beside the checkpoint, where they are without it.

    Args:
        proc_size: Not used: each process saves its own tables.
        proc_rank: Not used.
        save_path: Must be None: the files lie beside the checkpoint.
        buffer_size: Not used.

    Raises:
        ValueError: `save_path` is given.
    """

    def __init__(
        self,
        proc_size: int | None = None,
        proc_rank: int | None = None,
        save_path: str | None = None,
        buffer_size: int = 4096,
    ) -> None:
        del proc_size, proc_rank, buffer_size
        if save_path is not None:
            raise ValueError(
                "`save_path` must be None: a checkpoint's rows lie beside it. To write them "
                "elsewhere call Variable.save_to_file_system. " + received(save_path=save_path)
            )


def storage_creator(kv_creator: Any) -> KVCreator | None:
    """Returns the creator of the storage that a `kv_creator` argument asks for, None for memory.

    Args:
        kv_creator: What the user passed.

    Raises:
        TypeError: It is no `KVCreator`.
    """
    if kv_creator is None or isinstance(kv_creator, CuckooHashTableCreator):
        return None
    if not isinstance(kv_creator, KVCreator):
        raise TypeError(f"`kv_creator` must be a de.KVCreator. {received(kv_creator=kv_creator)}")
    return kv_creator
