"""Finds the input specs of a subclassed Keras 3 model that was called at least once.

Keras 3 stores the input shapes of the first call, but not the dtypes. A table knows the dtype of
its keys. So we run the model on placeholders, as Keras does to build it. An input has the dtype of
the keys if it reaches a lookup through operations whose inputs and outputs have the same dtype.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.tables.keys_and_values import watched_placeholders
from de_core.tables.sharded import ShardedTable


def specs_of(model: Any) -> Any:
    """Returns the specs of the model's call argument, or None if Keras stored no input shapes.

    Returns:
        A nest of `tf.TensorSpec`s with batch dimension None.

    Raises:
        ValueError: The dtype of an input is unknown, or an input may be ragged or sparse.
    """
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        return None
    shapes = _plain(shapes)
    flat = tf.nest.flatten(shapes)
    dtypes = _dtypes(model, shapes)
    unknown = [spec.shape for spec, dtype in zip(flat, dtypes, strict=True) if dtype is None]
    if unknown:
        raise _unknown(model, "dtype", f"of the inputs of shapes {unknown}")
    specs = [tf.TensorSpec(each.shape, dtype) for each, dtype in zip(flat, dtypes, strict=True)]
    return tf.nest.pack_sequence_as(shapes, specs)


def _dtypes(model: Any, shapes: Any) -> list[tf.DType | None]:
    """Returns the dtype of each input whose ids reach a table, and None for other inputs."""
    found: list[list[ShardedTable]] = []

    @tf.function(autograph=False)
    def run(*inputs: tf.Tensor) -> None:
        with keras.StatelessScope(), keras.SymbolicScope(), watched_placeholders() as seen:
            model(tf.nest.pack_sequence_as(shapes, inputs), training=False)
        for tensor in inputs:
            found.append([table for ids, table in seen if _is_of_one_dtype(ids, tensor)])

    floats = tf.as_dtype(model.input_dtype)
    try:
        run.get_concrete_function(
            *(tf.TensorSpec(each.shape, floats) for each in tf.nest.flatten(shapes))
        )
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise _unknown(model, "dtype", f"because it fails on placeholders: {error}") from error
    return [_dtype_of(model, tables) for tables in found]


def _dtype_of(model: Any, tables: list[ShardedTable]) -> tf.DType | None:
    for table in tables:
        kinds = table.kinds_of_ids
        if kinds != {"dense"}:
            seen = " and ".join(sorted(kinds)) or "no"
            raise _unknown(model, "kind", f"of an input: table {table.name!r} saw {seen} ids")
    dtypes = {table.spec.key_dtype for table in tables}
    if tf.int32 in dtypes:  # layers with int64 keys accept int32 ids too
        return tf.int32
    return dtypes.pop() if dtypes else None


def _is_of_one_dtype(ids: Any, source: tf.Tensor) -> bool:
    """Returns whether operations that keep the dtype compute `ids` from `source`."""
    waiting, met = [ids] if isinstance(ids, tf.Tensor) else [], set()
    while waiting:
        tensor = waiting.pop()
        if tensor is source:
            return True
        operation = tensor.op
        outputs = operation.op_def.output_arg
        # One output whose dtype is an attribute: the inputs of that dtype share the attribute.
        has_dtype_of_inputs = len(outputs) == 1 and outputs[0].type_attr
        if operation.graph is source.graph and has_dtype_of_inputs and operation.name not in met:
            met.add(operation.name)
            waiting.extend(each for each in operation.inputs if each.dtype == tensor.dtype)
    return False


def _plain(shapes: Any) -> Any:
    """Converts a nest of shapes to a nest of `tf.TensorSpec`s with batch dimension None."""
    if shapes is None:
        return tf.TensorSpec(None)
    if isinstance(shapes, dict):
        return {name: _plain(each) for name, each in shapes.items()}
    if all(each is None or isinstance(each, int) for each in shapes):
        return tf.TensorSpec([None, *shapes[1:]] if shapes else [])
    return [_plain(each) for each in shapes]


def _unknown(model: Any, what: str, why: str) -> ValueError:
    return ValueError(
        f"The {what} of each input of a subclassed model must be known: pass `inputs`, for example "
        "inputs={'user': tf.TensorSpec([None], tf.int64)}, or `signatures`. "
        f"{received(model=type(model).__name__)[:-1]}, {why}."
    )
