"""The serving signatures of a model: concrete functions by name, inputs and outputs named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core._keras import keras
from de_core.config import received

SERVING_DEFAULT = "serving_default"


def serving_functions(model: Any, signatures: Any, inputs: Any) -> dict[str, Any]:
    """Returns the concrete functions to export.

    Args:
        model: A Keras 3 model or a `tf.Module`.
        signatures: A function or a dict of them; None for the model's own call.
        inputs: `tf.TensorSpec`s to call the model with; None where the model knows them.

    Raises:
        TypeError: A signature is no function, or `inputs` are no specs.
        ValueError: The model's inputs are not known, or a function has no input signature.
    """
    if signatures is None:
        return {SERVING_DEFAULT: _of_model(model, inputs)}
    if inputs is not None:
        raise ValueError(
            "`inputs` describe the model's own call, so they go without `signatures`. "
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


def _of_model(model: Any, inputs: Any) -> Any:
    if inputs is None and not isinstance(model, keras.Model):
        own_call = getattr(model, "__call__", None)  # noqa: B004  the function itself is wanted
        if isinstance(own_call, tf.types.experimental.PolymorphicFunction):
            return _concrete(SERVING_DEFAULT, own_call)
    specs = _keras_inputs(model) if inputs is None else _checked_specs(inputs)
    if specs is None or not callable(model):
        raise ValueError(
            "It must be known what the model is called with: pass `inputs`, for example "
            "inputs={'user': tf.TensorSpec([None], tf.int64)}, or `signatures`. "
            f"Received: model={type(model).__name__}, inputs={inputs!r}."
        )
    names = _names(specs)
    flat = [
        tf.TensorSpec(spec.shape, spec.dtype, name=name)
        for name, spec in zip(names, tf.nest.flatten(specs), strict=True)
    ]
    call: Callable[..., Any] = model
    if isinstance(model, keras.Model):

        def call(features: Any) -> Any:
            return model(features, training=False)

    @tf.function(autograph=False)
    def serve(**features: tf.Tensor) -> dict[str, tf.Tensor]:
        ordered = [features[name] for name in names]
        return _named_outputs(model, call(tf.nest.pack_sequence_as(specs, ordered)))

    return serve.get_concrete_function(**{spec.name: spec for spec in flat})


def _keras_inputs(model: Any) -> Any:
    """Returns the specs of a functional or Sequential model's inputs, or None."""
    if not isinstance(model, keras.Model) or not getattr(model, "inputs", None):
        return None
    structure = getattr(model, "input", None)
    if structure is None or isinstance(model, keras.Sequential):
        structure = model.inputs[0] if len(model.inputs) == 1 else model.inputs
    return tf.nest.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name), structure
    )


def _checked_specs(inputs: Any) -> Any:
    for spec in tf.nest.flatten(inputs):
        if not isinstance(spec, tf.TensorSpec):
            raise TypeError(
                "`inputs` must be a tf.TensorSpec, or a list or dict of them. "
                + received(spec=spec)
            )
    return inputs


def _names(specs: Any) -> list[str]:
    """Names the inputs: by the keys of a dict, else by the specs' names, else by number."""
    if isinstance(specs, dict) and all(isinstance(each, tf.TensorSpec) for each in specs.values()):
        return sorted(specs)  # the order in which tf.nest flattens a dict
    flat = tf.nest.flatten(specs)
    plain = ["inputs"] if len(flat) == 1 else [f"input_{index}" for index in range(len(flat))]
    # Keras numbers inputs without a name anew in every process: no name to publish.
    given = [
        spec.name if not (spec.name or "keras_tensor").startswith("keras_tensor") else None
        for spec in flat
    ]
    names = [name or default for name, default in zip(given, plain, strict=True)]
    return names if len(set(names)) == len(names) else plain


def _named_outputs(model: Any, outputs: Any) -> dict[str, tf.Tensor]:
    if isinstance(outputs, dict):
        return {str(name): tf.convert_to_tensor(value) for name, value in outputs.items()}
    flat = tf.nest.flatten(outputs)
    names = getattr(model, "output_names", None)
    if not names or len(names) != len(flat) or len(flat) == 1:
        names = [f"output_{index}" for index in range(len(flat))]
    return {name: tf.convert_to_tensor(value) for name, value in zip(names, flat, strict=True)}
