"""Exports models with their trained tables as numbered SavedModel versions."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import DTypeLike, InputSpecs, Model, Request, Signatures, UnknownIds
from de_core.exports import served_rows, tensorflow_ops, warm_up
from de_core.exports import version as _version
from de_core.exports.served_rows import KeepRows
from de_core.exports.template import Template
from de_core.exports.version import Version
from de_core.tables.served_copy import SUFFIX


def export(
    model: Model,
    path: str | os.PathLike[str],
    signatures: Signatures = None,
    version: int | None = None,
    *,
    inputs: InputSpecs = None,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
    oov: UnknownIds | Mapping[str, UnknownIds] = "initial",
    keep: KeepRows | Mapping[str, KeepRows] | None = None,
    sample: Request | Sequence[Request] | None = None,
    ops: str = "de_core",
) -> Version:
    """Writes a model and the rows of its tables as the next version of a SavedModel.

    The version directory appears atomically. Its tables are read-only snapshot files without
    optimizer slots, which a server maps into memory. A process that loads the version needs
    TensorFlow and `import de_core` (for the op library), but not the model's code.

    The SavedModel has the model's own signatures and these: for each table that the model uses,
    `de_lookup/<name>` maps `ids` [n] to `embeddings` [n, dim] and `found`, bool [n]. `de_stats`
    returns `stats`, a JSON list with statistics of each table.

    Args:
        model: A Keras model, or a `tf.Module`.
        path: The model's directory, which contains numbered version directories.
        signatures: A `tf.function` with an input signature, a concrete function, or a dict of them
            by signature name. None makes `serving_default` from the model's own call. A tensor
            argument is a required input: its default value is not exported.
        version: Number of the version; None for the newest number plus one.
        inputs: Inputs for the call of a subclassed Keras model or a module: a `tf.TensorSpec`, or a
            list or dict of them. Not needed for functional and `Sequential` models, for subclassed
            tf_keras models that were already called, and for subclassed Keras 3 models that were
            already called if all inputs are dense ids of tables. A ragged input,
            `tf.RaggedTensorSpec`, becomes the inputs `<name>_values` and `<name>_row_lengths`,
            int64. A `tf.SparseTensorSpec` becomes `<name>_indices`, `<name>_values` and
            `<name>_dense_shape`.
        dtype: Storage format of floating-point values: "float32", "float16", "bfloat16", or "int8"
            with a scale per row. None for the values' own dtype. Lookups return the values' own
            dtype in any case. `dtype`, `oov` and `keep` apply to all tables, or are dicts by table
            name.
        oov: Result for an id without a row: "initial" (its initial row, as in training), "zeros", a
            number for all elements (`bytes` for a table of strings), a row [dim], or "error", which
            fails the lookup and names the id.
        keep: A `KeepRows` that selects rows by frequency, last use, score or a function of keys;
            None for all rows.
        sample: Requests to `serving_default` (or the first signature): inputs by name, or a list of
            such dicts. They are written as warm-up requests for TensorFlow Serving and the gateway,
            and their answers are compared with the live model's answers.
        ops: "de_core" for tables that a server maps into memory by this library's ops. "tensorflow"
            for TensorFlow's own ops: any TensorFlow Serving and any program with TensorFlow loads
            the version, without `import de_core`. The keys are in a hash table of TensorFlow and
            the rows in a variable, so loading takes the time and the memory of a copy. The version
            has no `de_stats`, and `de.publish` cannot add a delta to it. `oov="initial"` needs an
            initializer that is the same for each id, and with "error" the error is
            `InvalidArgumentError`. `signatures` must be `tf.function`s that only look up rows.

    Returns:
        The version directory, a string with a `report`. Its `tables` has for each table `rows`,
        `bytes` and, if `dtype` changes the format, `max_error` and `mean_error`, the rounding
        errors per element. With a sample, its `scores` has for each output the `max` and `mean`
        difference to the live model, unless rows are in a storage.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: No signature can be made, no signature uses a table, `path` is not on this
            machine, or an argument is out of range.
        FileExistsError: The version exists already.
        tf.errors.OpError: A file cannot be written, for example because the disk is full.

    Example:
    >>> import keras, tempfile, tensorflow as tf, de_core as de
    >>> model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2, name="t")])
    >>> directory = de.export(model, tempfile.mkdtemp(), dtype="int8", oov="zeros")
    >>> sorted(tf.saved_model.load(directory).signatures)
    ['de_lookup/t', 'de_stats', 'serving_default']
    """
    if ops not in ("de_core", "tensorflow"):
        raise ValueError(f"`ops` must be 'de_core' or 'tensorflow'. {received(ops=ops)}")
    template = Template(model, signatures, inputs)
    rows = served_rows.of_tables(template.names, dtype, oov, keep)
    name = template.main_signature
    requests = None if sample is None else warm_up.requests(sample, template.functions[name])
    target = _version.next_in(_version.local(path, "path"), version)
    tables: dict[str, Any] = {}
    report: dict[str, Any] = {"tables": tables}
    with _version.being_written(target) as folder:
        if ops == "tensorflow":
            given = (model, signatures, inputs)
            tables.update(tensorflow_ops.save(folder, template, rows, given))
        else:
            copies = template.save(folder, SUFFIX)
            for table_name, table in template.names.items():
                names = [copies[shard].file.name for shard in table.tables]
                paths = [str(folder / "assets" / each) for each in names]
                tables[table_name] = served_rows.total(rows[table_name].write(table, paths))
        if requests is not None:
            warm_up.write(folder, target.parent.name, name, requests)
            # Functions that were traced for an export do not read rows in a storage.
            if not any(table.outlives_its_process for table in template.names.values()):
                function = template.functions[name]
                report["scores"] = _score_errors(folder, name, function, requests)
        _version.write_report(folder, report)
    return Version(str(target), report)


def _score_errors(
    folder: pathlib.Path, signature: str, function: Any, made: Iterable[Mapping[str, tf.Tensor]]
) -> dict[str, dict[str, float]]:
    """Returns the largest and the mean difference of each floating-point output."""
    loaded = tf.saved_model.load(str(folder))
    differences: dict[str, list[Any]] = {}
    for request in made:
        expected = function(**request)
        if not isinstance(expected, Mapping):  # use the output names that TensorFlow generates
            flat = tf.nest.flatten(expected)
            expected = {f"output_{index}": value for index, value in enumerate(flat)}
        got = loaded.signatures[signature](**request)
        for name, value in got.items():
            if value.dtype.is_floating:
                off = tf.abs(tf.cast(value, tf.float64) - tf.cast(expected[name], tf.float64))
                differences.setdefault(name, []).append(off.numpy().ravel())
    found = {}
    for name, parts in differences.items():
        off = np.concatenate(parts)
        if off.size:
            found[name] = {"max": float(off.max()), "mean": float(off.mean())}
    return found
