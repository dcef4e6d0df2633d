"""Writing numbered SavedModel versions with the trained tables in them."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from de_core.config import received
from de_core.frozen import deferred_writes
from de_core.sharded_table import ShardedTable, tables_behind
from de_core.signatures import serving_functions

LOOKUP_PREFIX = "de_lookup/"
STATS = "de_stats"


def export(
    model: Any,
    path: str | os.PathLike[str],
    signatures: Any = None,
    version: int | None = None,
    *,
    inputs: Any = None,
) -> str:
    """Writes a model and the rows of its tables as the next version of a SavedModel.

    The version directory appears whole or not at all. Its tables are read-only snapshot files
    without optimizer slots; an id that was never trained reads as its initial row, as it does here.
    A process that loads it needs TensorFlow and `import de_core` (for the op library), not the
    model's code.

    Besides the model's own signatures there are, for each table that they use, `de_lookup/<name>`
    (`ids` [n] to `embeddings` [n, dim] and `found` [n]), and `de_stats` (to `stats`, a JSON list).

    Args:
        model: A Keras 3 model, or a `tf.Module`.
        path: The model's directory; versions are numbered directories in it.
        signatures: A `tf.function` with an input signature, a concrete function, or a dict of them
            by signature name. None makes `serving_default` of the model's own call.
        version: Number of the version; None for one more than the newest.
        inputs: What a subclassed Keras model or a module is called with: a `tf.TensorSpec`, or a
            list or dict of them. Functional and `Sequential` models know theirs.

    Returns:
        The version directory.

    Raises:
        TypeError: `signatures` or `inputs` are of a wrong type.
        ValueError: No signature can be made, none uses a table, or `version` is not positive.
        FileExistsError: The version exists.

    Example:
    >>> import keras, tempfile, de_core as de
    >>> model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2, name="t")])
    >>> directory = de.export(model, tempfile.mkdtemp())
    >>> sorted(tf.saved_model.load(directory).signatures)
    ['de_lookup/t', 'de_stats', 'serving_default']
    """
    with deferred_writes():
        functions = serving_functions(model, signatures, inputs)
    stores = tables_behind(
        handle for function in functions.values() for handle in function.captured_inputs
    )
    if not stores:
        raise ValueError(
            "The signatures must use a dynamic table; for a model without one use "
            f"tf.saved_model.save. Received: signatures={sorted(functions)}."
        )
    base = pathlib.Path(path)
    base.mkdir(parents=True, exist_ok=True)
    target = base / str(_checked_version(version, base))
    if target.exists():
        raise FileExistsError(
            f"A version directory must not exist yet. Received: {target}. Pass another `version`, "
            "or None for the next one."
        )
    # Beside the versions, so that it can be renamed; not a number, so that no server loads it.
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=base))
    try:
        _write(work, model, functions, stores)
        (work / "model").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return str(target)


def _write(
    work: pathlib.Path, model: Any, functions: dict[str, Any], stores: list[ShardedTable]
) -> None:
    """Writes the SavedModel to `work / "model"`."""
    files = {}
    for table in (table for store in stores for table in store.tables):
        copy = table.frozen_copy()
        files[table] = work / copy.file.name
        copy.write_to(files[table])
    names = _unique_names(stores)
    root = tf.Module()
    root.tables = list(files)
    root.used_variables = [v for function in functions.values() for v in function.variables]
    root.used_resources = _other_resources(model, functions.values(), set(files))
    lookups = {LOOKUP_PREFIX + name: _lookup(store) for name, store in names.items()}
    stats = _stats([_description(name, store, files) for name, store in names.items()])
    with deferred_writes():
        tf.saved_model.save(
            root, str(work / "model"), signatures={**functions, **lookups, STATS: stats}
        )
    for file in files.values():
        file.replace(work / "model" / "assets" / file.name)  # the saver copied an empty one there
    for file in (work / "model").rglob("*"):
        _sync(file)


def _lookup(store: ShardedTable) -> Callable[..., Any]:
    @tf.function(input_signature=[tf.TensorSpec([None], store.spec.key_dtype, name="ids")])
    def lookup(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        embeddings, found = store.find(ids)
        return {"embeddings": embeddings, "found": found}

    return lookup


def _stats(descriptions: list[dict[str, Any]]) -> Callable[..., Any]:
    @tf.function(input_signature=[])
    def stats() -> dict[str, tf.Tensor]:
        return {"stats": tf.constant(json.dumps(descriptions))}

    return stats


def _description(name: str, store: ShardedTable, files: dict[Any, pathlib.Path]) -> dict[str, Any]:
    own = [files[table] for table in store.tables]
    return {
        "table": name,
        "rows": int(store.size()),
        "dim": store.spec.dim,
        "key_dtype": store.spec.key_dtype.name,
        "value_dtype": store.spec.value_dtype.name,
        "bytes": sum(file.stat().st_size for file in own),
        "oov": "initial",
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "file": own[0].name if len(own) == 1 else [file.name for file in own],
    }


def _unique_names(stores: Iterable[ShardedTable]) -> dict[str, ShardedTable]:
    """Names each table; of several of one name the later ones get a number."""
    names: dict[str, ShardedTable] = {}
    for store in stores:
        name, number = store.name, 0
        while name in names:
            number += 1
            name = f"{store.name}_{number}"
        names[name] = store
    return names


class _SavedModelView(tf.train.TrackableView):
    """Walks an object as a SavedModel of it would."""

    @classmethod
    def children(cls, obj: Any, save_type: str = "savedmodel", **kwargs: Any) -> Any:
        return super().children(obj, save_type, **{"cache": {}, **kwargs})


def _other_resources(model: Any, functions: Iterable[Any], tables: set[Any]) -> list[Any]:
    """Returns further resources that the functions use, such as vocabularies of the model."""
    captured = {
        id(tensor)
        for function in functions
        for tensor in function.captured_inputs
        if tensor.dtype == tf.resource
    }
    known = {id(v.handle) for function in functions for v in function.variables}
    known |= {id(table.resource_handle) for table in tables}
    if captured <= known:
        return []
    return [
        each
        for each in _SavedModelView(model).descendants()
        if isinstance(each, tf.saved_model.experimental.TrackableResource)
        and id(each.resource_handle) in captured - known
    ]


def _checked_version(version: int | None, base: pathlib.Path) -> int:
    if version is None:
        numbers = [int(each.name) for each in base.iterdir() if each.name.isdecimal()]
        return max(numbers, default=0) + 1
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"`version` must be a positive integer. {received(version=version)}")
    return version


def _sync(file: pathlib.Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
