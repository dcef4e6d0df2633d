"""Tables in the tensors of a TensorFlow checkpoint that `tfra.dynamic_embedding` wrote.

`tf.train.Checkpoint` and Keras write `<path>/tables_of_<name>/<i>/.ATTRIBUTES/table-keys`, and
`table-values`. A Saver of TensorFlow 1 writes `<scope>/<name>_mht_<i>of<n>-keys`, and `-values`.
The name has "_" for "/"; the scope ends with the last part of the name. With a `FileSystemSaver`
both write a flag instead: the rows lie in a folder beside the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.tfra_files.contents import SavedTable, Spec, flat

_OBJECT = re.compile(
    r"(?:(?P<path>.+)/)?tables_of_(?P<table>[^/]+)/(?P<index>\d+)/"
    r"\.ATTRIBUTES/table-(?P<part>keys|values|shard_upsert_restore)"
)
_NAMED = re.compile(
    r"(?:(?:.+/)?(?P<scope>[^/]+)/)?(?P<table>[^/]+)_mht_(?P<index>\d+)of(?P<count>\d+)-"
    r"(?P<part>keys|values|shard_upsert_restore)"
)
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


class TensorShard:
    """A shard whose keys and values are two tensors of a checkpoint.

    Args:
        tensors: The checkpoint.
        keys: The key of the tensor with the keys.
        values: The key of the tensor with the values.
    """

    def __init__(self, tensors: Tensors, keys: str, values: str) -> None:
        self._tensors = tensors
        self._keys = keys
        self._values = values

    def spec(self) -> Spec:
        """Returns the dtypes and the dim.

        Raises:
            ValueError: The shapes are not [n] and [n, dim].
        """
        keys, values = (self._tensors.shapes[key] for key in (self._keys, self._values))
        if len(keys) != 1 or len(values) != 2 or keys[0] != values[0]:
            raise ValueError(
                "Keys must have the shape [n], and values the shape [n, dim]. Received: "
                f"keys.shape={keys}, values.shape={values} of {self._keys!r}. Read the table from "
                "a checkpoint that tfra wrote."
            )
        dtypes = self._tensors.dtypes
        return Spec(dtypes[self._keys], dtypes[self._values], values[1])

    def sizes(self) -> tuple[int, int]:
        """Returns the bytes of all keys and of all values. Strings count as one byte."""
        (rows,), spec = self._tensors.shapes[self._keys], self.spec()
        return (
            rows * max(spec.key_dtype.size, 1),
            rows * spec.dim * max(spec.value_dtype.size, 1),
        )

    def rows(self, spec: Spec) -> int:
        """Returns the number of rows."""
        del spec
        return self._tensors.shapes[self._keys][0]

    def batches(self, spec: Spec, rows: int) -> Iterator[tuple[Any, Any]]:
        """Yields keys [n] and values [n, dim]."""
        del spec
        keys, values = self._tensors.read(self._keys), self._tensors.read(self._values)
        for first in range(0, len(keys), rows):
            yield keys[first : first + rows], values[first : first + rows]


def tables_in(tensors: Tensors) -> tuple[dict[str, SavedTable], dict[str, SavedTable]]:
    """Finds the tables of a checkpoint by name.

    Returns:
        Tables with their rows in the checkpoint; and tables without shards, whose rows lie beside.

    Raises:
        ValueError: A shard, keys or values are missing.
    """
    found: dict[tuple[str, str], dict[str, dict[int, str]]] = {}
    counts: dict[tuple[str, str], int] = {}
    scopes: dict[tuple[str, str], str] = {}
    for key in tensors.shapes:
        match = _OBJECT.fullmatch(key)
        if match is not None:
            place = (_ESCAPED.sub(_unescaped, match["table"]), match["path"] or "")
            index = int(match["index"])
        else:
            match = _NAMED.fullmatch(key)
            if match is None:
                continue
            place, index = (match["table"], ""), int(match["index"]) - 1
            counts[place], scopes[place] = int(match["count"]), match["scope"] or ""
        found.setdefault(place, {}).setdefault(match["part"], {})[index] = key
    here, beside = {}, {}
    for place, parts in sorted(found.items()):
        name = _unique(place, found)
        count = counts.get(place) or max(max(part) for part in parts.values()) + 1
        if "shard_upsert_restore" in parts:
            _require_all(name, count, {"shards": parts["shard_upsert_restore"]}, tensors.prefix)
            beside[name] = SavedTable(*place, (), scopes.get(place, ""))
            continue
        keys, values = parts.get("keys", {}), parts.get("values", {})
        _require_all(name, count, {"keys": keys, "values": values}, tensors.prefix)
        shards = (TensorShard(tensors, keys[index], values[index]) for index in range(count))
        here[name] = SavedTable(*place, tuple(shards), scopes.get(place, ""))
    return here, beside


def _unescaped(match: re.Match[str]) -> str:
    return "/" if match[1] == "S" else match[1]


def _unique(place: tuple[str, str], found: Any) -> str:
    name, path = place
    same = sum(flat(name) == flat(other) for other, _ in found)
    return f"{path}/{name}" if same > 1 else name


def _require_all(name: str, count: int, parts: dict[str, dict[int, str]], prefix: str) -> None:
    for part, present in parts.items():
        missing = sorted(set(range(1, count + 1)) - {index + 1 for index in present})
        if missing:
            raise ValueError(
                f"All {count} shards of table {name!r} must exist. Received: no {part} of shards "
                f"{missing} in {prefix!r}. Read the table from a checkpoint that is whole."
            )
