"""Builds a model's serving signatures: concrete functions with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import LEGACY, keras
from de_core.tables.keys_and_values import watched_placeholders
from de_core.tables.sharded import ShardedTable

SERVING_DEFAULT = "serving_default"
#: Supported specs of a signature's inputs.
SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


def serving_functions(model: Any, signatures: Any, inputs: Any) -> dict[str, Any]:
    """Returns the concrete functions to export.

    Args:
        model: A Keras 3 model or a `tf.Module`.
        signatures: A function or a dict of them; None for the model's own call.
        inputs: Specs for the model's call, also ragged or sparse; None if the model knows its
            inputs.

    Raises:
        TypeError: A signature is not a function, or `inputs` are not specs.
        ValueError: The model's inputs are unknown, or a function has no input signature.
    """
    if signatures is None:
        return {SERVING_DEFAULT: _of_model(model, inputs)}
    if inputs is not None:
        raise ValueError(
            "`inputs` describe the model's own call, so `signatures` must be None. "
            + received(inputs=inputs)
        )
    if not isinstance(signatures, dict):
        signatures = {SERVING_DEFAULT: signatures}
    return {name: _concrete(name, function) for name, function in signatures.items()}


def _concrete(name: str, function: Any) -> Any:
    if isinstance(function, tf.types.experimental.ConcreteFunction):
        return function
    if not isinstance(function, tf.types.experimental.PolymorphicFunction):
        raise TypeError(
            f"Signature {name!r} must be a tf.function or one of its concrete functions. "
            + received(function=function)
        )
    try:
        return function.get_concrete_function()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Signature {name!r} must say what it takes: decorate it with "
            "tf.function(input_signature=[...]) or pass function.get_concrete_function(...). "
            + received(function=function)
        ) from error


def own_function(model: Any) -> Any:
    """Returns a module's call if it is a `tf.function`; None for others and for Keras models."""
    own_call = getattr(model, "__call__", None)  # noqa: B004  the function itself is wanted
    is_function = isinstance(own_call, tf.types.experimental.PolymorphicFunction)
    return own_call if is_function and not isinstance(model, keras.Model) else None


def _of_model(model: Any, inputs: Any) -> Any:
    if inputs is None and (function := own_function(model)) is not None:
        return _concrete(SERVING_DEFAULT, function)
    specs = _keras_inputs(model) if inputs is None else inputs
    for spec in [] if inputs is None else tf.nest.flatten(inputs):
        if not isinstance(spec, SPECS):
            raise TypeError(
                "`inputs` must be a tf.TensorSpec, a tf.RaggedTensorSpec or a "
                f"tf.SparseTensorSpec, or a list or dict of them. {received(spec=spec)}"
            )
    if specs is None or not callable(model):
        raise ValueError(
            "The inputs of the model's call must be known: pass `inputs`, for example "
            "inputs={'user': tf.TensorSpec([None], tf.int64)}, or `signatures`. "
            f"Received: model={type(model).__name__}, inputs={inputs!r}."
        )
    named = dict(zip(_names(specs), map(_spec_of, tf.nest.flatten(specs)), strict=True))
    dense = [each for name, spec in named.items() for each in specs_of(name, spec)]
    if len({spec.name for spec in dense}) < len(dense):
        raise ValueError(
            "The inputs of a signature must have distinct names, also <name>_values and "
            "<name>_row_lengths of a ragged one: rename an input. "
            f"Received: {sorted(spec.name for spec in dense)}."
        )
    call: Callable[..., Any] = model
    if isinstance(model, keras.Model):

        def call(features: Any) -> Any:
            return model(features, training=False)

    @tf.function(autograph=False)
    def serve(**features: tf.Tensor) -> dict[str, tf.Tensor]:
        ordered = [joined(name, spec, features) for name, spec in named.items()]
        return named_outputs(model, call(tf.nest.pack_sequence_as(specs, ordered)))

    return serve.get_concrete_function(**{spec.name: spec for spec in dense})


def _keras_inputs(model: Any) -> Any:
    """Returns the model's inputs as Keras stores them: tensors or specs, or None if unknown."""
    if not isinstance(model, keras.Model):
        return None
    if not getattr(model, "inputs", None):
        if not LEGACY:
            return _called_inputs(model)
        arguments = model.save_spec()
        return arguments[0][0] if arguments is not None and len(arguments[0]) == 1 else None
    structure = getattr(model, "input", None)
    if structure is None or isinstance(model, keras.Sequential):
        structure = model.inputs[0] if len(model.inputs) == 1 else model.inputs
    return structure


def _called_inputs(model: Any) -> Any:
    """Returns the input specs of a subclassed Keras 3 model that was called at least once, or None.

    Keras 3 stores the input shapes of the first call, but not the dtypes. A table knows the dtype
    of its keys. So we run the model on placeholders, as Keras does to build it. An input has the
    dtype of the keys if it reaches a lookup through operations that keep the dtype.

    Returns:
        A nest of `tf.TensorSpec`s with batch dimension None.

    Raises:
        ValueError: The dtype of an input is unknown, or an input may be ragged or sparse.
    """
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        return None
    shapes = _specs_of_shapes(shapes)
    flat = tf.nest.flatten(shapes)
    dtypes = _input_dtypes(model, shapes)
    unknown = [spec.shape for spec, dtype in zip(flat, dtypes, strict=True) if dtype is None]
    if unknown:
        raise _unknown_input(model, "dtype", f"of the inputs of shapes {unknown}")
    specs = [tf.TensorSpec(each.shape, dtype) for each, dtype in zip(flat, dtypes, strict=True)]
    return tf.nest.pack_sequence_as(shapes, specs)


def _input_dtypes(model: Any, shapes: Any) -> list[tf.DType | None]:
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
        raise _unknown_input(
            model, "dtype", f"because it fails on placeholders: {error}"
        ) from error
    return [_dtype_of(model, tables) for tables in found]


def _dtype_of(model: Any, tables: list[ShardedTable]) -> tf.DType | None:
    for table in tables:
        kinds = table.kinds_of_ids
        if kinds != {"dense"}:
            seen = " and ".join(sorted(kinds)) or "no"
            raise _unknown_input(model, "kind", f"of an input: table {table.name!r} saw {seen} ids")
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


def _specs_of_shapes(shapes: Any) -> Any:
    """Converts a nest of shapes to a nest of `tf.TensorSpec`s with batch dimension None."""
    if shapes is None:
        return tf.TensorSpec(None)
    if isinstance(shapes, dict):
        return {name: _specs_of_shapes(each) for name, each in shapes.items()}
    if all(each is None or isinstance(each, int) for each in shapes):
        return tf.TensorSpec([None, *shapes[1:]] if shapes else [])
    return [_specs_of_shapes(each) for each in shapes]


def _unknown_input(model: Any, what: str, why: str) -> ValueError:
    return ValueError(
        f"The {what} of each input of a subclassed model must be known: pass `inputs`, for example "
        "inputs={'user': tf.TensorSpec([None], tf.int64)}, or `signatures`. "
        f"{received(model=type(model).__name__)[:-1]}, {why}."
    )


def _names(specs: Any) -> list[str]:
    """Returns the inputs' names: a dict's keys, else the specs' names, else numbered names."""
    flat = tf.nest.flatten(specs)
    if isinstance(specs, dict) and not any(map(tf.nest.is_nested, specs.values())):
        return sorted(specs)  # tf.nest flattens a dict in this order
    plain = ["inputs"] if len(flat) == 1 else [f"input_{index}" for index in range(len(flat))]
    given = [getattr(spec, "name", None) for spec in flat]
    # Keras generates a name for an unnamed input, which differs in every process. Ignore it.
    given = [None if (name or "").startswith("keras_tensor") else name for name in given]
    names = [name or default for name, default in zip(given, plain, strict=True)]
    return names if len(set(names)) == len(names) else plain


def named_outputs(model: Any, outputs: Any) -> dict[str, tf.Tensor]:
    """Returns the dense outputs of a signature by name. The model may have names for them."""
    if not isinstance(outputs, dict):
        flat = tf.nest.flatten(outputs)
        names = getattr(model, "output_names", None)
        if not names or len(names) != len(flat) or len(flat) == 1:
            names = [f"output_{index}" for index in range(len(flat))]
        outputs = dict(zip(names, flat, strict=True))
    dense: dict[str, tf.Tensor] = {}
    for name, output in outputs.items():
        if not isinstance(output, tf.RaggedTensor):
            dense[str(name)] = tf.convert_to_tensor(output)
            continue
        dense[f"{name}_values"] = output.flat_values  # a ragged output: values and row lengths
        lengths = _lengths(str(name), output.ragged_rank)
        dense.update(zip(lengths, output.nested_row_lengths(), strict=True))
    return dense


def _spec_of(tensor: Any) -> Any:
    """Returns a spec, or the spec of an input that Keras stores for a functional model."""
    if isinstance(tensor, SPECS):
        return tensor
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
        spec: One of `SPECS`. A ragged input becomes `<name>_values` and, for each ragged
            dimension, `<name>_row_lengths`. A sparse input becomes `<name>_indices`,
            `<name>_values` and `<name>_dense_shape`.
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
    """Builds an input from the dense inputs that represent it. Reverses `specs_of`."""
    if isinstance(spec, tf.RaggedTensorSpec):
        lengths = [inputs[each] for each in _lengths(name, spec.ragged_rank)]
        ragged = tf.RaggedTensor.from_nested_row_lengths(inputs[f"{name}_values"], lengths)
        return ragged.with_row_splits_dtype(spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        parts = [inputs[f"{name}_{part}"] for part in ("indices", "values", "dense_shape")]
        # The tables' ops require row-major order.
        return tf.sparse.reorder(tf.SparseTensor(*parts))
    return inputs[name]


def _lengths(name: str, ragged_rank: int) -> list[str]:
    plain = f"{name}_row_lengths"
    return [plain] if ragged_rank == 1 else [f"{plain}_{axis}" for axis in range(ragged_rank)]
