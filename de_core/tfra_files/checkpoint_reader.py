"""Tables in the tensors of a TensorFlow checkpoint that `tfra.dynamic_embedding` wrote.

`tf.train.Checkpoint` and Keras write `<path>/tables_of_<name>/<i>/.ATTRIBUTES/table-keys`, and
`table-values`. A Saver of TensorFlow 1 writes `<scope>/<name>_mht_<i>of<n>-keys`, and `-values`.
The name has "_" for "/"; the scope ends with the last part of the name. With a `FileSystemSaver`
both write a flag instead: the rows lie in a folder beside the checkpoint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.tfra_files.saved_table import SavedTable, Shard, Spec, all_shards, flat

_OBJECT = re.compile(
    r"(?:(?P<path>.+)/)?tables_of_(?P<table>[^/]+)/(?P<index>\d+)/"
    r"\.ATTRIBUTES/table-(?P<part>keys|values|shard_upsert_restore)"
)
_NAMED = re.compile(
    r"(?:(?:.+/)?(?P<scope>[^/]+)/)?(?P<table>[^/]+)_mht_(?P<index>\d+)of(?P<count>\d+)-"
    r"(?P<part>keys|values|shard_upsert_restore)"
)
_FLAG = "shard_upsert_restore"
_ESCAPED = re.compile(r"\.(.)")


class Tensors(NamedTuple):
    """The tensors of a checkpoint.

    Attributes:
        prefix: The checkpoint's prefix.
        reader: Reads a tensor by its key.
        shapes: The shape of each tensor by its key.
        dtypes: The dtype of each tensor by its key.
    """

    prefix: str
    reader: Any
    shapes: dict[str, list[int]]
    dtypes: dict[str, tf.DType]

    @classmethod
    def of(cls, prefix: str) -> Tensors:
        """Opens a checkpoint.

        Raises:
            tf.errors.OpError: The checkpoint's index is missing or damaged.
        """
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        return cls(prefix, reader, shapes, dtypes)

    def read(self, key: str) -> Any:
        """Returns a tensor as an array.

        Raises:
            tf.errors.OpError: A data file is missing or damaged.
        """
        try:
            return self.reader.get_tensor(key)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            # TensorFlow's reader wraps its errors in Python's.
            raise tf.errors.DataLossError(
                None,
                None,
                f"All tensors of a checkpoint must be readable. Received: {key!r} of "
                f"{self.prefix!r}: {error}. Copy the checkpoint again.",
            ) from error


def _shard(tensors: Tensors, keys: str, values: str) -> Shard:
    """Returns the shard whose keys and values are two tensors of a checkpoint.

    Raises:
        ValueError: The shapes are not [n] and [n, dim].
    """
    shapes = tensors.shapes[keys], tensors.shapes[values]
    if [len(each) for each in shapes] != [1, 2] or shapes[0][0] != shapes[1][0]:
        raise ValueError(
            "Keys must have the shape [n], and values the shape [n, dim]. Received: "
            f"keys.shape={shapes[0]}, values.shape={shapes[1]} of {keys!r}. Read the table from a "
            "checkpoint that tfra wrote."
        )
    spec = Spec(tensors.dtypes[keys], tensors.dtypes[values], shapes[1][1])

    def read(_: Spec, rows: int) -> Iterator[tuple[Any, Any]]:
        there = tensors.read(keys), tensors.read(values)
        for first in range(0, len(there[0]), rows):
            yield there[0][first : first + rows], there[1][first : first + rows]

    numbers = math.prod(shapes[0]), math.prod(shapes[1])
    sizes = numbers[0] * max(spec.key_dtype.size, 1), numbers[1] * max(spec.value_dtype.size, 1)
    return Shard(keys, spec, sizes, read)


def tables_in(tensors: Tensors) -> tuple[dict[str, SavedTable], dict[str, SavedTable]]:
    """Finds the tables of a checkpoint by name.

    Returns:
        Tables with their rows in the checkpoint; and tables without shards, whose rows lie beside.

    Raises:
        ValueError: A shard, keys or values are missing.
    """
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    named: dict[tuple[str, str], tuple[int, str]] = {}
    for key in tensors.shapes:
        match, first = _OBJECT.fullmatch(key), 0
        if match is not None:
            table = _ESCAPED.sub(lambda found: found[1].replace("S", "/"), match["table"])
            place = (table, match["path"] or "")
        else:
            match, first = _NAMED.fullmatch(key), 1
            if match is None:
                continue
            place = (match["table"], "")
            named[place] = (int(match["count"]), match["scope"] or "")
        number = str(int(match["index"]) + 1 - first)
        found.setdefault(place, {}).setdefault(number, {})[match["part"]] = key
    here, beside = {}, {}
    for place, shards in sorted(found.items()):
        table, path = place
        is_unique = sum(flat(table) == flat(other) for other, _ in found) == 1
        name = table if is_unique else f"{path}/{table}"
        count, scope = named.get(place, (max(map(int, shards)), ""))
        is_beside = any(_FLAG in parts for parts in shards.values())
        wanted = {_FLAG} if is_beside else {"keys", "values"}
        numbers = [str(number) for number in range(1, count + 1)]
        parts = all_shards(name, shards, numbers, wanted, tensors.prefix)
        if is_beside:
            beside[name] = SavedTable(*place, (), scope, {}, {})
        else:
            shard = (_shard(tensors, each["keys"], each["values"]) for each in parts)
            here[name] = SavedTable(*place, tuple(shard), scope, {}, {})
    return here, beside
