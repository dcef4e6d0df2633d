"""Names that are not there, each with what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def removed_names(module: str, **replacements: str) -> Callable[[str], Any]:
    """Returns a module's `__getattr__`, whose error for a removed name says what replaces it.

    Args:
        module: Its name.
        **replacements: A clause for each removed name.

    Example:
    >>> removed_names("shop", fax="send a letter")("fax")
    Traceback (most recent call last):
    AttributeError: module 'shop' has no attribute 'fax': send a letter
    """

    def get(name: str) -> Any:
        hint = f": {replacements[name]}" if name in replacements else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}")

    return get


_ONE_TABLE = "every Variable keeps its rows in the table that de.Variable makes"
_HKV = "tables are kept in main memory; bound a Variable by an eviction policy instead"
_REDIS = "pass kv_creator=de.RedisTableCreator(…) to a Variable, which is the table"
_HOROVOD = "Horovod is not used; `devices` puts the tables of a Variable on several machines"

#: For the package itself.
PACKAGE = {
    "CuckooHashTable": _ONE_TABLE,
    "DEResourceVariable": "a lookup makes no variable; pass de.TrainableWrapper instead",
    "DistributedVariableWrapper": "a Variable works under tf.distribute by itself",
    "HkvEvictStrategy": _HKV,
    "HkvHashTable": _HKV,
    "HkvHashTableConfig": _HKV,
    "HkvHashTableCreator": _HKV,
    "HvdAllToAllEmbedding": _HOROVOD,
    "RedisTable": _REDIS,
    "create_slots": "optimizers keep their slots in the rows; see get_slot_variables",
    "python": "import the names from de_core itself",
    "ragged_embedding_ops": "every lookup takes ragged ids",
}
