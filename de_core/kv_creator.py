"""The `kv_creator` argument: which storage keeps the rows. There is one, in main memory."""

from __future__ import annotations

from typing import Any

from de_core.config import received


class KVCreator:
    """What `kv_creator` may be: `CuckooHashTableCreator`, or nothing.

    Args:
        config: Of the storage; the one there is has none.
        saver: Where checkpoints keep the rows; files beside the checkpoint in any case.
    """

    def __init__(self, config: Any = None, saver: Any = None) -> None:
        self.config = config
        self.saver = saver


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


def check_creator(kv_creator: Any) -> None:
    """Raises unless a `kv_creator` argument asks for the storage there is.

    Args:
        kv_creator: What the user passed.

    Raises:
        TypeError: It is no `KVCreator`.
        NotImplementedError: It is another one than `CuckooHashTableCreator`.
    """
    if kv_creator is None or isinstance(kv_creator, CuckooHashTableCreator):
        return
    if not isinstance(kv_creator, KVCreator):
        raise TypeError(f"`kv_creator` must be a de.KVCreator. {received(kv_creator=kv_creator)}")
    raise NotImplementedError(
        "`kv_creator` must be None or a de.CuckooHashTableCreator: there is no other storage yet. "
        + received(kv_creator=kv_creator)
    )
