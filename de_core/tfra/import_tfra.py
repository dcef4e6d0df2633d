"""Imports tables from `tfra` checkpoints and key-value files: `de.import_tfra`."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import received
from de_core.base.progress import Progress
from de_core.base.types import DTypeLike
from de_core.variable.variable import Variable

_NAME = re.compile(
    r"(?P<table>.+)_mht_(?P<index>\d+)of(?P<count>\d+)(?P<rank>_rank\d+_size\d+)?-(?P<part>keys|values)"
)
_ATTRIBUTE = "/.ATTRIBUTES/"
_ROWS_AT_ONCE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class _Shard:
    """The keys and values of one shard of a table, from a checkpoint or from files.

    Attributes:
        rows: Number of rows.
        key_dtype: Dtype of the keys.
        value_dtype: Dtype of the values.
        dim: Values per row.
        read: Called as `read(first, count)`. Returns keys [count] and values [count, dim].
    """

    rows: int
    key_dtype: tf.DType
    value_dtype: tf.DType
    dim: int
    read: Any

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Yields keys [n] and values [n, dim] in batches of a few MiB."""
        row_bytes = 16 + self.dim * max(self.value_dtype.size, 1)
        step = max(1, _ROWS_AT_ONCE_BYTES // row_bytes)
        for first in range(0, self.rows, step):
            yield self.read(first, min(step, self.rows - first))


def import_tfra(
    path: str | os.PathLike[str],
    target: Variable | Mapping[str, Variable] | None = None,
    *,
    tables: str = ".*",
    key_dtype: DTypeLike = tf.int64,
    value_dtype: DTypeLike | None = None,
    dim: int | None = None,
) -> dict[str, Variable]:
    """Imports tables that `tfra.dynamic_embedding` saved, with any number of shards.

    The rows are added to the rows of the Variable. In `tfra`, an optimizer's slots are separate
    tables, named after the table and the optimizer. They become separate Variables here.

    Args:
        path: The prefix of a TensorFlow checkpoint or a directory of them; the directory of a
            SavedModel; or a directory of key-value files, `<name>_mht_<i>of<n>-keys` and
            `-values`.
        target: The Variable for the only table, or Variables by table name. None to create one
            Variable per table, with the table's name and, for a checkpoint, its dtypes.
        tables: A regular expression that matches the full names of the tables to import.
        key_dtype: Key dtype of key-value files: `tf.int64` or `tf.int32`.
        value_dtype: Value dtype. Required for key-value files.
        dim: Values per row. Required for key-value files.

    Returns:
        The Variables by table name.

    Raises:
        ValueError: There are no such tables, a table's shard is missing, a shard's keys and values
            do not match, or `target` does not fit.
        tf.errors.NotFoundError: `path` does not exist.

    Example:
    >>> import tempfile
    >>> checkpoint = tempfile.mkdtemp() + "/ckpt"
    >>> _ = tf.raw_ops.SaveV2(
    ...     prefix=checkpoint,
    ...     tensor_names=["user_mht_1of1-keys", "user_mht_1of1-values"],
    ...     shape_and_slices=["", ""],
    ...     tensors=[tf.constant([7], tf.int64), tf.constant([[1.0, 2.0]])],
    ... )
    >>> import_tfra(checkpoint)["user"].lookup([7]).numpy().tolist()
    [[1.0, 2.0]]
    """
    try:
        wanted = re.compile(tables)
    except re.error as error:
        raise ValueError(
            "`tables` must be a regular expression of Python's `re`. Received: "
            f"{tables!r}: {error}."
        ) from error
    found = _found(os.fspath(path).rstrip("/"), key_dtype, value_dtype, dim)
    chosen = {name: shards for name, shards in found.items() if wanted.fullmatch(name)}
    if not chosen:
        raise ValueError(
            "The path must hold tables that `tables` matches, as tensors or files "
            f"<name>_mht_<i>of<n>-keys and -values. Received: path={os.fspath(path)!r} with tables "
            f"{sorted(found)}, tables={tables!r}."
        )
    variables = _targets(target, chosen)
    total = sum(shard.rows for shards in chosen.values() for shard in shards)
    with Progress(total, "import") as progress:
        for name, shards in chosen.items():
            for shard in shards:
                for keys, values in shard.batches():
                    variables[name].upsert(keys, values)
                    progress.add(len(keys))
    return variables


def _targets(target: Any, chosen: dict[str, list[_Shard]]) -> dict[str, Variable]:
    if isinstance(target, Variable):
        if len(chosen) != 1:
            raise ValueError(
                "One Variable must receive one table. "
                f"Received: one Variable for {sorted(chosen)}. Pass a dict of Variables by name, "
                "or select one table by `tables`."
            )
        target = dict.fromkeys(chosen, target)
    if target is None:
        return {
            name: Variable(
                shards[0].key_dtype,
                shards[0].value_dtype,
                shards[0].dim,
                name=name,
                init_size=sum(shard.rows for shard in shards),
            )
            for name, shards in chosen.items()
        }
    missing = sorted(set(chosen) - set(target))
    if missing:
        raise ValueError(
            "`target` must have a Variable for each table. Received: none for "
            f"{missing}. Add them, or select fewer tables by `tables`."
        )
    for name, shards in chosen.items():
        _check_fits(target[name], name, shards)
    return {name: target[name] for name in chosen}


def _check_fits(variable: Variable, name: str, shards: list[_Shard]) -> None:
    for shard in shards:
        wanted = (variable.key_dtype.name, variable.value_dtype.name, variable.dim)
        given = (shard.key_dtype.name, shard.value_dtype.name, shard.dim)
        if wanted != given:
            raise ValueError(
                f"The Variable for table {name!r} must have its dtypes and dim, {given}. "
                f"{received(target=wanted)}"
            )


def _found(
    path: str, key_dtype: DTypeLike, value_dtype: DTypeLike | None, dim: int | None
) -> dict[str, list[_Shard]]:
    prefix = _prefix(path)
    if prefix is not None:
        return _in_checkpoint(prefix)
    if not tf.io.gfile.isdir(path):
        raise tf.errors.NotFoundError(
            None,
            None,
            "The path must be a checkpoint's prefix, a SavedModel, or a directory of key-value "
            f"files. Received: path={path!r}.",
        )
    return _in_files(path, tf.as_dtype(key_dtype), value_dtype, dim)


def _prefix(path: str) -> str | None:
    candidates = [path, paths.join(path, "variables/variables")]
    if tf.io.gfile.isdir(path):
        newest = tf.train.latest_checkpoint(path)
        candidates += [] if newest is None else [newest]
    return next((each for each in candidates if tf.io.gfile.exists(each + ".index")), None)


def _in_checkpoint(prefix: str) -> dict[str, list[_Shard]]:
    reader = tf.train.load_checkpoint(prefix)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    places: dict[str, str] = {}
    for key in shapes:
        # Tensors of objects have keys `<path of the object>/.ATTRIBUTES/<name>`.
        name = key.rpartition(_ATTRIBUTE)[2].replace(".S", "/")
        if _NAME.fullmatch(name):
            places[name] = key

    def shard(keys_name: str, values_name: str) -> _Shard:
        keys, values = places[keys_name], places[values_name]
        rows = shapes[keys][0] if shapes[keys] else -1
        _check_shapes(keys_name, list(shapes[keys]), list(shapes[values]))

        def read(first: int, count: int) -> tuple[tf.Tensor, tf.Tensor]:
            row = shapes[values][1]
            return tuple(
                tf.raw_ops.RestoreV2(
                    prefix=prefix,
                    tensor_names=[keys, values],
                    shape_and_slices=[
                        f"{rows} {first},{count}",
                        f"{rows} {row} {first},{count}:0,{row}",
                    ],
                    dtypes=[dtypes[keys], dtypes[values]],
                )
            )

        return _Shard(rows, dtypes[keys], dtypes[values], shapes[values][1], read)

    return _shards(places, shard)


def _check_shapes(name: str, keys: list[int], values: list[int]) -> None:
    if len(keys) != 1 or len(values) != 2 or keys[0] != values[0]:
        raise ValueError(
            "Keys must have the shape [n], and values the shape [n, dim]. Received: "
            f"keys.shape={keys}, values.shape={values} of {name!r}."
        )


def _in_files(
    folder: str, key_dtype: tf.DType, value_dtype: DTypeLike | None, dim: int | None
) -> dict[str, list[_Shard]]:
    names = {name: paths.join(folder, name) for name in tf.io.gfile.listdir(folder)}
    places = {name: path for name, path in names.items() if _NAME.fullmatch(name)}
    if places and (value_dtype is None or dim is None):
        raise ValueError(
            "Key-value files do not contain their dtypes and dim. "
            f"{received(value_dtype=value_dtype, dim=dim)} For them, pass `value_dtype` and `dim`."
        )
    if places and not (key_dtype.is_integer and tf.as_dtype(value_dtype) != tf.string):
        raise ValueError(
            "Keys of key-value files must be integers, and values numbers. Files of strings cannot "
            "be imported, because tfra writes the strings' memory addresses. "
            f"{received(key_dtype=key_dtype, value_dtype=value_dtype)}"
        )

    def shard(keys_name: str, values_name: str) -> _Shard:
        values = tf.as_dtype(value_dtype)
        sizes = [tf.io.gfile.stat(places[name]).length for name in (keys_name, values_name)]
        rows, row_bytes = sizes[0] // key_dtype.size, int(dim or 0) * values.size
        if sizes != [rows * key_dtype.size, rows * row_bytes]:
            raise ValueError(
                f"{places[values_name]!r} must have a row for each key of {keys_name!r}: "
                f"{rows * row_bytes} bytes. Received: {sizes[1]} bytes, {sizes[0]} of keys, with "
                f"key_dtype={key_dtype.name}, value_dtype={values.name}, dim={dim}."
            )

        def read(first: int, count: int) -> tuple[Any, Any]:
            keys = _read(places[keys_name], key_dtype, first, count)
            flat = _read(places[values_name], values, first * int(dim or 0), count * int(dim or 0))
            return keys, flat.reshape([count, -1])

        return _Shard(rows, key_dtype, values, int(dim or 0), read)

    return _shards(places, shard)


def _read(path: str, dtype: tf.DType, first: int, count: int) -> Any:
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(first * dtype.size)
        return np.frombuffer(file.read(count * dtype.size), dtype.as_numpy_dtype)


def _shards(places: dict[str, str], shard: Any) -> dict[str, list[_Shard]]:
    """Groups the shards by table. Raises if a shard is missing."""
    tables: dict[str, dict[tuple[str, int], set[int]]] = {}
    for name in places:
        match = _NAME.fullmatch(name)
        assert match is not None
        other = (
            name.removesuffix(match["part"]) + {"keys": "values", "values": "keys"}[match["part"]]
        )
        if other not in places:
            raise ValueError(f"{name!r} must come with {other!r}. Received: the first alone.")
        layouts = tables.setdefault(match["table"], {})
        layout = layouts.setdefault((match["rank"] or "", int(match["count"])), set())
        layout.add(int(match["index"]))
    found: dict[str, list[_Shard]] = {}
    for table, layouts in sorted(tables.items()):
        for (rank, count), present in sorted(layouts.items()):
            missing = sorted(set(range(1, count + 1)) - present)
            if missing:
                raise ValueError(
                    f"All {count} shards of table {table!r} must exist. Received: no {missing}."
                )
            for index in range(1, count + 1):
                stem = f"{table}_mht_{index}of{count}{rank}"
                found.setdefault(table, []).append(shard(f"{stem}-keys", f"{stem}-values"))
    return found
