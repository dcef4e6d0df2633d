"""Finds the files that a path means, and the tables in them: a reader per layout.

In a TensorFlow checkpoint, `tf.train.Checkpoint` and Keras write the tensors
`<path>/tables_of_<name>/<i>/.ATTRIBUTES/table-keys`, and `table-values`. A Saver of TensorFlow 1
writes `<scope>/<name>_mht_<i>of<n>-keys`, and `-values`. The name has "_" for "/"; the scope ends
with the last part of the name. With a `FileSystemSaver` both write a flag instead: the rows lie in
a folder beside the checkpoint.

`save_to_file_system` and `FileSystemSaver` write the files of a shard as
`<name>_mht_<i>of<n>[_rank<r>_size<s>]-keys` and `-values`. They hold numbers without a header or a
checksum. "/" in a name has become "_".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import received
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
_BESIDE = "TFRADynamicEmbedding"
_INDEX = ".index"
_FILE_NAME = re.compile(
    r"(?P<table>.+)_mht_(?P<index>\d+)of(?P<count>\d+)"
    r"(?:_rank(?P<rank>\d+)_size(?P<size>\d+))?-(?P<part>keys|values)"
)
_FIRST_BYTES = 1 << 20


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


def tables_at(path: str) -> tuple[Tensors | None, dict[str, SavedTable]]:
    """Returns the checkpoint that a path means, if it means one, and the tables by name.

    Raises:
        ValueError: The path is a file, or files are missing.
        tf.errors.NotFoundError: The path does not exist.
    """
    prefix = _prefix_of(path)
    if prefix is not None:
        there = Tensors.of(prefix)
        here, beside = _tables_in_tensors(there)
        return there, here | (_with_rows_beside(prefix, beside) if beside else {})
    if not tf.io.gfile.isdir(path):
        if tf.io.gfile.exists(path):
            raise ValueError(
                "The path must not be a file: tfra writes no rows into files with the endings .h5, "
                f".weights.h5 and .keras. {received(path=path)} Pass a checkpoint or a SavedModel "
                "of the same run."
            )
        raise tf.errors.NotFoundError(
            None,
            None,
            "The path must be a checkpoint's prefix, a SavedModel, or a directory of checkpoints "
            f"or key-value files. Received: path={path!r}.",
        )
    return None, _tables_in_folder(path)


def _prefix_of(path: str) -> str | None:
    """Returns the prefix of the checkpoint that a path means, or None."""
    for each in (path, paths.join(path, "variables/variables")):
        if tf.io.gfile.exists(each + _INDEX):
            return each
    if not tf.io.gfile.isdir(path):
        return None
    newest = tf.train.latest_checkpoint(path)
    if newest is not None:
        return str(newest)
    found = [name for name in tf.io.gfile.listdir(path) if name.endswith(_INDEX)]
    if len(found) > 1:
        raise ValueError(
            "A directory of checkpoints must name its newest one in a file `checkpoint`. Received: "
            f"{path!r} with {sorted(found)}. Pass the prefix of one checkpoint."
        )
    return paths.join(path, found[0].removesuffix(_INDEX)) if found else None


def _with_rows_beside(prefix: str, wanted: dict[str, SavedTable]) -> dict[str, SavedTable]:
    """Adds the rows that a FileSystemSaver wrote beside a checkpoint to tables without shards."""
    folder = paths.folder_of(prefix)
    number = paths.base_name(prefix).rpartition("-")[2]
    chosen = paths.join(folder, f"{_BESIDE}-{number}")
    if not (number.isdigit() and tf.io.gfile.isdir(chosen)):
        chosen = paths.join(folder, _BESIDE)
        newest = tf.train.latest_checkpoint(folder)
        found = [name for name in tf.io.gfile.listdir(folder) if name.endswith(_INDEX)]
        # Without a file `checkpoint`, any other checkpoint may be the newer one.
        others = found if newest is None else [f"{paths.base_name(newest)}{_INDEX}"]
        others = sorted({*others} - {f"{paths.base_name(prefix)}{_INDEX}"})
        if others:
            raise ValueError(
                f"The folder {_BESIDE!r} holds the rows of the newest checkpoint only, because "
                f"tfra overwrites it. Received: path={prefix!r} beside {others}. Import the "
                "newest, whose name a file `checkpoint` must tell, or pass the folder itself as "
                "the path."
            )
    there = _tables_in_folder(chosen) if tf.io.gfile.isdir(chosen) else {}
    missing = sorted(name for name, table in wanted.items() if flat(table.name) not in there)
    if missing:
        raise ValueError(
            "A checkpoint with a FileSystemSaver must have the folder with the rows beside it. "
            f"Received: no files of tables {missing} in {chosen!r}. Copy the folder there, or pass "
            "the path of the folder."
        )
    return {
        name: table._replace(shards=there[flat(table.name)].shards)
        for name, table in wanted.items()
    }


def _shard_of_tensors(tensors: Tensors, keys: str, values: str) -> Shard:
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


def _tables_in_tensors(tensors: Tensors) -> tuple[dict[str, SavedTable], dict[str, SavedTable]]:
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
            shard = (_shard_of_tensors(tensors, each["keys"], each["values"]) for each in parts)
            here[name] = SavedTable(*place, tuple(shard), scope, {}, {})
    return here, beside


def _shard_of_files(files: dict[str, str]) -> Shard:
    """Returns the shard in two files."""

    def read(spec: Spec, rows: int) -> Iterator[tuple[Any, Any]]:
        with (
            tf.io.gfile.GFile(files["keys"], "rb") as keys,
            tf.io.gfile.GFile(files["values"], "rb") as values,
        ):
            while some := keys.read(rows * spec.key_dtype.size):
                there = np.frombuffer(some, spec.key_dtype.as_numpy_dtype)
                row = values.read(len(there) * spec.dim * spec.value_dtype.size)
                numbers = np.frombuffer(row, spec.value_dtype.as_numpy_dtype)
                yield there, numbers.reshape([-1, spec.dim])

    keys, values = (int(tf.io.gfile.stat(files[part]).length) for part in ("keys", "values"))
    return Shard(files["keys"], None, (keys, values), read)


def check_keys(table: SavedTable, spec: Spec, is_given: bool) -> None:
    """Checks that the keys of a table in files are int64, or int32, and cannot be the other.

    n keys of int64 with rows of `dim` numbers have the sizes of 2 n keys of int32 with half rows.
    They cannot be int32 if a half of a key repeats: the keys of a shard are distinct.

    Raises:
        ValueError: The keys repeat, or may be of the other dtype.
    """
    shards = []
    for path in [each.source for each in table.shards if each.spec is None]:
        with tf.io.gfile.GFile(path, "rb") as keys:
            some = keys.read(_FIRST_BYTES)
        if len(some) >= 4:
            shards.append(np.frombuffer(some[: len(some) // 4 * 4], np.int32))
    repeat = any(len(np.unique(halves)) < len(halves) for halves in shards)
    if spec.key_dtype == tf.int32:
        other = Spec(tf.int64, spec.value_dtype, 2 * spec.dim)
        may_be_other = all(len(halves) % 2 == 0 for halves in shards)
    else:
        other = Spec(tf.int32, spec.value_dtype, spec.dim // 2)
        may_be_other = spec.dim % 2 == 0 and not repeat
    if repeat and spec.key_dtype == tf.int32:
        raise ValueError(
            f"The keys of a shard of table {table.name!r} must be distinct. Received: keys that "
            f"repeat, with spec={spec}. Pass the dtypes and the dim of the saved table."
        )
    if shards and may_be_other and not is_given:
        raise ValueError(
            f"The sizes of the files of table {table.name!r} must tell the dtype of its keys. "
            f"Received: files that hold {spec} or {other}. Pass `key_dtype` to name the dtype "
            "that was saved."
        )


def _tables_in_folder(folder: str) -> dict[str, SavedTable]:
    """Finds the tables of a folder by name.

    Raises:
        ValueError: A shard, keys or values are missing, or a table was saved several times with
            different numbers of shards.
        tf.errors.NotFoundError: The folder does not exist.
    """
    found: dict[str, dict[tuple[str, str], dict[str, dict[str, str]]]] = {}
    for file in tf.io.gfile.listdir(folder):
        match = _FILE_NAME.fullmatch(file.rstrip("/"))
        if match is not None:
            saves = found.setdefault(match["table"], {})
            shards = saves.setdefault((match["count"], match["size"]), {})
            own = shards.setdefault(_number(match["index"], match["rank"]), {})
            own[match["part"]] = paths.join(folder, file)
    tables = {}
    for name, saves in sorted(found.items()):
        if len(saves) > 1:
            raise ValueError(
                f"A folder must hold one save of table {name!r}. Received: saves with "
                f"(shards, processes)={sorted(saves, key=str)} in {folder!r}. Move the older files "
                "away."
            )
        (((count, size), shards),) = saves.items()
        ranks = [None] if size is None else range(int(size))
        wanted = [_number(index, rank) for rank in ranks for index in range(1, int(count) + 1)]
        files = all_shards(name, shards, wanted, {"keys", "values"}, folder)
        tables[name] = SavedTable(name, "", tuple(map(_shard_of_files, files)), "", {}, {})
    return tables


def _number(index: str | int, rank: str | int | None) -> str:
    return f"{index}" if rank is None else f"{index} of process {rank}"
