"""Ragged and sparse tensors as the dense ones that requests and answers hold."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

#: Specs of the inputs that a signature can have.
SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


def of_keras_input(tensor: Any) -> Any:
    """Returns the spec of an input of a functional model.

    Args:
        tensor: What Keras 3 or tf_keras keeps of it.
    """
    if hasattr(tensor, "type_spec"):
        return tensor.type_spec  # of tf_keras
    shape, dtype = tensor.shape, tf.as_dtype(tensor.dtype)
    if getattr(tensor, "ragged", False):
        unknown = [axis for axis, size in enumerate(shape) if size is None]
        ragged_rank = getattr(tensor, "ragged_rank", None) or max([1, *unknown])
        return tf.RaggedTensorSpec(shape, dtype, ragged_rank=ragged_rank)
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(shape, dtype)
    return tf.TensorSpec(shape, dtype)


def specs_of(name: str, spec: Any) -> list[tf.TensorSpec]:
    """Returns the dense inputs that stand for one input.

    Args:
        name: The input's.
        spec: One of `SPECS`. A ragged one becomes `<name>_values` and, for each ragged dimension,
            `<name>_row_lengths`; a sparse one `<name>_indices`, `<name>_values` and
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
    """Returns the input that dense ones stand for; undoes `specs_of`.

    Args:
        name: The input's.
        spec: One of `SPECS`.
        inputs: The dense ones by name.
    """
    if isinstance(spec, tf.RaggedTensorSpec):
        lengths = [inputs[each] for each in _lengths(name, spec.ragged_rank)]
        ragged = tf.RaggedTensor.from_nested_row_lengths(inputs[f"{name}_values"], lengths)
        return ragged.with_row_splits_dtype(spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        parts = [inputs[f"{name}_{part}"] for part in ("indices", "values", "dense_shape")]
        # The tables' ops take them in row-major order.
        return tf.sparse.reorder(tf.SparseTensor(*parts))
    return inputs[name]


def named(name: str, output: Any) -> dict[str, tf.Tensor]:
    """Returns an output by its name: a ragged one as its values and row lengths."""
    if not isinstance(output, tf.RaggedTensor):
        return {name: tf.convert_to_tensor(output)}
    lengths = zip(_lengths(name, output.ragged_rank), output.nested_row_lengths(), strict=True)
    return {f"{name}_values": output.flat_values, **dict(lengths)}


def _lengths(name: str, ragged_rank: int) -> list[str]:
    plain = f"{name}_row_lengths"
    return [plain] if ragged_rank == 1 else [f"{plain}_{axis}" for axis in range(ragged_rank)]
