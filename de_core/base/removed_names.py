"""Names of the ancestor library that do not exist here, each with its replacement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def removed_names(module: str, **replacements: str) -> Callable[[str], Any]:
    """Returns a module's `__getattr__`. Its error for a removed name says what replaces the name.

    Args:
        module: The module's name.
        **replacements: For each removed name, the hint that its error ends with.

    Example:
    >>> removed_names("shop", fax="send a letter")("fax")
    Traceback (most recent call last):
    AttributeError: module 'shop' has no attribute 'fax': send a letter
    """

    def get(name: str) -> Any:
        raise missing(f"module {module!r}", name, replacements)

    return get


def missing(owner: str, name: str, replacements: Mapping[str, str]) -> AttributeError:
    """Returns the error for an attribute that does not exist, with a hint for a removed one.

    Args:
        owner: The module or object, as the error names it.
        name: The attribute's name.
        replacements: For each removed name, the hint that its error ends with.

    Example:
    >>> print(missing("'Shop' object", "fax", {"fax": "send a letter"}))
    'Shop' object has no attribute 'fax': send a letter
    """
    hint = f": {replacements[name]}" if name in replacements else ""
    return AttributeError(f"{owner} has no attribute {name!r}{hint}")


_ONE_TABLE = "every Variable keeps its rows in the table that de.Variable makes"
_HKV = "tables are kept in main memory; bound a Variable by an eviction policy instead"
_REDIS = "pass kv_creator=de.RedisTableCreator(…) to a Variable, which is the table"
_HOROVOD = "Horovod is not used; `devices` puts the tables of a Variable on several machines"

#: Removed names of the package.
PACKAGE = {
    "CuckooHashTable": _ONE_TABLE,
    "DEResourceVariable": "a lookup makes no variable; pass de.TrainableWrapper instead",
    "DistributedVariableWrapper": "a Variable works under tf.distribute by itself",
    "HkvEvictStrategy": _HKV,
    "HkvHashTable": _HKV,
    "HkvHashTableConfig": _HKV,
    "HkvHashTableCreator": _HKV,
    "HvdAllToAllEmbedding": _HOROVOD,
    "LossScaleOptimizer": "tf_keras.mixed_precision.LossScaleOptimizer scales tables by itself",
    "RedisTable": _REDIS,
    "create_slots": "optimizers keep their slots in the rows; see get_slot_variables",
    "python": "import the names from de_core itself",
    "ragged_embedding_ops": "every lookup takes ragged ids",
}

#: Removed names of `Variable`. Its `__getattr__` reads them.
VARIABLE = {
    "embedding_lookup": "use de.embedding_lookup(variable, ids)",
    "get_trainable_by_name": "lookups make no variables; see trainable_variables",
    "load_from_file_system_with_restore_function": "use load_from_file_system",
    "trainable_store": "lookups make no variables; see trainable_variables",
    "verify_embedding_weights": "every lookup checks its ids and weights itself",
}
#: Removed names of `TrainableWrapper`.
TRAINABLE_WRAPPER = {
    "model_mode": "a lookup is a pure read in every mode; see de.get_model_mode",
    "transform": "lookups scale rows to `max_norm` themselves",
}
