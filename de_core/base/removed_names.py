"""Names that users of other libraries expect and that do not exist here, with replacements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


def removed_names(module: str, **replacements: str) -> Callable[[str], NoReturn]:
    """Returns a `__getattr__` for a module. Its error for a removed name tells the replacement.

    Example:
    >>> removed_names("shop", fax="send a letter")("fax")
    Traceback (most recent call last):
    AttributeError: module 'shop' has no attribute 'fax': send a letter
    """

    def get(name: str) -> NoReturn:
        raise missing(f"module {module!r}", name, replacements)

    return get


def missing(owner: str, name: str, replacements: Mapping[str, str]) -> AttributeError:
    """Returns the error for an attribute that does not exist, with a hint for a removed one.

    Example:
    >>> print(missing("'Shop' object", "fax", {"fax": "send a letter"}))
    'Shop' object has no attribute 'fax': send a letter
    """
    hint = f": {replacements[name]}" if name in replacements else ""
    return AttributeError(f"{owner} has no attribute {name!r}{hint}")


_ONE_TABLE = "every de.Variable creates its own table"
_HKV = "tables are in main memory; give a Variable an eviction policy to limit its rows"
_REDIS = "pass kv_creator=de.RedisTableCreator(…) to a Variable"
_HOROVOD = "Horovod is not used; `devices` puts the shards of a Variable on several machines"

_WRAP = "wrap the optimizer in DynamicEmbeddingOptimizer"

#: Names that the package does not have.
PACKAGE = {
    "CuckooHashTable": _ONE_TABLE,
    "DEResourceVariable": "a lookup creates no variable; pass de.TrainableWrapper instead",
    "DistributedVariableWrapper": "a Variable works under tf.distribute without a wrapper",
    "HkvEvictStrategy": _HKV,
    "HkvHashTable": _HKV,
    "HkvHashTableConfig": _HKV,
    "HkvHashTableCreator": _HKV,
    "HvdAllToAllEmbedding": _HOROVOD,
    "LossScaleOptimizer": "tf_keras.mixed_precision.LossScaleOptimizer works with tables",
    "RedisTable": _REDIS,
    "create_slots": "optimizers keep their slots in the rows; see get_slot_variables",
    "python": "import the names from de_core",
    "ragged_embedding_ops": "every lookup takes ragged ids",
    "register_all": "from de_core import tfra, and use tfra.register_all",
}

#: Names that `Variable` does not have. Its `__getattr__` reads them.
VARIABLE = {
    **dict.fromkeys(("assign", "insert"), "write rows by upsert(keys, rows)"),
    "numpy": "export() returns all keys and rows",
    "shape": "a table grows; see size() and `dim`",
    "_id": "pass its `trainable_variables` to tape.gradient",
    "embedding_lookup": "use de.embedding_lookup(variable, ids)",
    "get_trainable_by_name": "lookups create no variables; see trainable_variables",
    "load_from_file_system_with_restore_function": "use load_from_file_system",
    "trainable_store": "lookups create no variables; see trainable_variables",
    "verify_embedding_weights": "every lookup checks its ids and weights",
}
#: Names that `TrainableWrapper` does not have.
TRAINABLE_WRAPPER = {
    "model_mode": "a lookup is a pure read in every mode",
    "transform": "lookups scale rows to `max_norm`",
    **dict.fromkeys(("_shared_name", "constraint", "device"), _WRAP),
}
