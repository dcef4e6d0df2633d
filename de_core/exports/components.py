"""Converts ragged and sparse tensors to and from dense tensors, which are all a request holds."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

#: Supported specs of a signature's inputs.
SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


def of_keras_input(tensor: Any) -> Any:
    """Returns the spec of a functional model's input.

    Args:
        tensor: The object that Keras 3 or tf_keras stores for the input.
    """
    if hasattr(tensor, "type_spec"):
        return tensor.type_spec  # tf_keras
    shape, dtype = tensor.shape, tf.as_dtype(tensor.dtype)
    if getattr(tensor, "ragged", False):
        unknown = [axis for axis, size in enumerate(shape) if size is None]
        ragged_rank = getattr(tensor, "ragged_rank", None) or max([1, *unknown])
        return tf.RaggedTensorSpec(shape, dtype, ragged_rank=ragged_rank)
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(shape, dtype)
    return tf.TensorSpec(shape, dtype)


def specs_of(name: str, spec: Any) -> list[tf.TensorSpec]:
    """Returns the dense inputs that represent one input.

    Args:
        name: The input's name.
        spec: One of `SPECS`. A ragged input becomes `<name>_values` and, for each ragged dimension,
            `<name>_row_lengths`. A sparse input becomes `<name>_indices`, `<name>_values` and
            `<name>_dense_shape`.
    """
    if isinstance(spec, tf.RaggedTensorSpec):
        values = [None, *spec.shape[spec.ragged_rank + 1 :]]
        first = spec.shape[0] if spec.ragged_rank == 1 else None
        return [
            tf.TensorSpec(values, spec.dtype, f"{name}_values"),
            *(tf.TensorSpec([first], tf.int64, each) for each in _lengths(name, spec.ragged_rank)),
        ]
    if isinstance(spec, tf.SparseTensorSpec):
        rank = spec.shape.rank
        return [
            tf.TensorSpec([None, rank], tf.int64, f"{name}_indices"),
            tf.TensorSpec([None], spec.dtype, f"{name}_values"),
            tf.TensorSpec([rank], tf.int64, f"{name}_dense_shape"),
        ]
    return [tf.TensorSpec(spec.shape, spec.dtype, name)]


def joined(name: str, spec: Any, inputs: dict[str, tf.Tensor]) -> Any:
    """Builds an input from the dense inputs that represent it. Reverses `specs_of`.

    Args:
        name: The input's name.
        spec: One of `SPECS`.
        inputs: The dense inputs by name.
    """
    if isinstance(spec, tf.RaggedTensorSpec):
        lengths = [inputs[each] for each in _lengths(name, spec.ragged_rank)]
        ragged = tf.RaggedTensor.from_nested_row_lengths(inputs[f"{name}_values"], lengths)
        return ragged.with_row_splits_dtype(spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        parts = [inputs[f"{name}_{part}"] for part in ("indices", "values", "dense_shape")]
        # The tables' ops require row-major order.
        return tf.sparse.reorder(tf.SparseTensor(*parts))
    return inputs[name]


def named(name: str, output: Any) -> dict[str, tf.Tensor]:
    """Returns dense outputs by name. A ragged output becomes its values and row lengths."""
    if not isinstance(output, tf.RaggedTensor):
        return {name: tf.convert_to_tensor(output)}
    lengths = zip(_lengths(name, output.ragged_rank), output.nested_row_lengths(), strict=True)
    return {f"{name}_values": output.flat_values, **dict(lengths)}


def _lengths(name: str, ragged_rank: int) -> list[str]:
    plain = f"{name}_row_lengths"
    return [plain] if ragged_rank == 1 else [f"{plain}_{axis}" for axis in range(ragged_rank)]
