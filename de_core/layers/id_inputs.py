"""The ids of a layer: makes tensors of them, checks their dtype, and finds padding.

Refuses ids that a model of Keras casts from floating point. A float32 has 24 bits, so distinct ids
become equal. Keras 3 casts the inputs of a functional model to the dtypes of its `keras.Input`s. A
`Sequential` without a `keras.Input` makes one: of the ids' dtype if a layer of tables is first, but
of floats if another model is first.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from types import FrameType
from typing import Any

import tensorflow as tf

from de_core.base import call_stack
from de_core.base.checks import received
from de_core.base.keras import LEGACY, dtype_name, is_symbolic, keras
from de_core.base.types import Id, Ids, Rows
from de_core.lookup.segments import flat_values
from de_core.tables.spec import KEY_DTYPES


def plain_ids(ids: Any, key_dtype: tf.DType, owner: str) -> Any:
    """Returns a number, a string or a list of them as a tensor, and any other `ids` as they are.

    Keras takes only tensors and arrays as a layer's first argument. `owner` says what the ids are
    for, such as "layer 'users'".

    Raises:
        TypeError: `ids` are a dict.
        ValueError: `ids` are lists of several lengths, or of numbers and strings.
    """
    if isinstance(ids, dict):
        raise TypeError(
            "The ids of a layer must be one tensor: pass one feature of the dict, or use "
            f"de.layers.EmbeddingCollection. Received: a dict of {', '.join(map(str, ids))}."
        )
    if not _is_plain(ids):
        return ids
    try:
        return tf.convert_to_tensor(ids, dtype_hint=key_dtype)
    except ValueError as error:
        raise ValueError(
            f"The ids of {owner} must be lists of equal lengths, of {key_dtype.name} ids only: "
            f"make ragged ids by tf.ragged.constant(ids, dtype={key_dtype.name!r}). "
            f"Received: {error}"
        ) from error


def _is_plain(ids: Any) -> bool:
    if isinstance(ids, (list, tuple)):
        return all(map(_is_plain, ids))
    return isinstance(ids, (int, str, bytes)) and not isinstance(ids, bool)


def check_dtype(ids: Any, wanted: str, owner: str) -> None:
    """Raises TypeError unless ids have the dtype `wanted`, or int32 for int64 keys.

    `owner` says what the ids are for, such as "layer 'users'".
    """
    given = dtype_name(ids.dtype)
    if given == wanted or (given, wanted) == ("int32", "int64"):
        _check_origin(ids, wanted, owner)
        return
    other = ""
    if given in [each.name for each in KEY_DTYPES]:
        made = "layer" if owner.startswith("layer") else "table"
        other = f", or the {made} with key_dtype={given!r}"
    elif given == "uint64" and wanted == "int64":
        other = ", or write ids.view('int64') in NumPy, which keeps all ids apart"
    elif tf.as_dtype(given).is_integer and wanted == "int64":
        other = ", or write ids.astype('int64') in NumPy"
    elif tf.is_symbolic_tensor(ids):
        other = (
            ". A Sequential without such an input makes an input of floats. When Keras saves a "
            "subclassed model, it assumes that all inputs are floats: pass `input_signature` to "
            f"`model.export`, or, for tf.saved_model.save, define `input_dtype` as {wanted!r} in "
            "the model's class"
        )
    elif not is_symbolic(ids):
        other = ", or cast them"
    raise TypeError(
        f"The ids of {owner} must be {wanted}: make its input with keras.Input(..., "
        f"dtype={wanted!r}){other}. Received: ids.dtype={given} (of type {type(ids).__name__})."
    )


def _check_origin(ids: Any, key_dtype: str, owner: str) -> None:
    """Raises TypeError if a model that is running cast floats to the dtype of the ids.

    Checks only while Keras builds or traces a model: an eager call would become slower.
    """
    if LEGACY or not (is_symbolic(ids) or tf.is_symbolic_tensor(getattr(ids, "values", ids))):
        return
    building: dict[int, Any] = {}

    def casts_floats(frame: FrameType) -> bool:
        model = frame.f_locals.get("self")
        if not isinstance(model, keras.Model):
            return False
        if frame.f_code.co_name == "build":  # a Sequential that has no `inputs` yet
            building[id(model)] = frame.f_locals.get("inputs")
            return False
        # A Sequential casts `args` itself.
        args = frame.f_locals.get("original_args") or frame.f_locals.get("args")
        if not args:
            return False
        given = args[0]
        wanted = building.get(id(model)) if id(model) in building else _inputs_of(model)
        if isinstance(given, Mapping):
            if not isinstance(wanted, Mapping):
                wanted = {each.name: each for each in keras.tree.flatten(wanted)}
            pairs = [(wanted[name], given[name]) for name in wanted if name in given]
        else:
            flat = keras.tree.flatten(wanted), keras.tree.flatten(given)
            pairs = list(zip(*flat, strict=False))
        for model_input, tensor in pairs:
            cast_to, given_as = getattr(model_input, "dtype", None), getattr(tensor, "dtype", None)
            is_of_ids = cast_to is not None and dtype_name(cast_to) == dtype_name(ids.dtype)
            if is_of_ids and given_as is not None and "float" in dtype_name(given_as):
                return True
        return False

    frame = call_stack.nearest("build", "__call__", is_sought=casts_floats)
    # `fit` builds a model with placeholders. With replicas, Keras 3.15 makes them of float64 for
    # ids of int64. The check follows when the step is traced.
    if frame is not None and call_stack.nearest("_symbolic_build") is None:
        model = frame.f_locals["self"].name
        raise TypeError(
            f"The ids of {owner} must reach the model as {key_dtype}: as floats, ids of 2**24 and "
            f"more become equal. Received: floats, which the model {model!r} casts. Begin the "
            f"outermost model with keras.Input(..., dtype={key_dtype!r}), and pass {key_dtype}."
        )


def _inputs_of(model: Any) -> Any:
    try:
        return model.inputs if isinstance(model, keras.Sequential) else model.input
    except (AttributeError, ValueError):  # not a functional model, or not built
        return []


def checked_key(mask_key: Id | None, key_dtype: tf.DType) -> int | str | None:
    """Returns the padding id as a JSON value for a layer's config: None, int or str."""
    if mask_key is None:
        return None
    given: Any = mask_key.numpy() if hasattr(mask_key, "numpy") else mask_key
    if key_dtype == tf.string and isinstance(given, (str, bytes)):
        return tf.compat.as_str(given)
    whole = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if key_dtype == tf.string or not whole:
        raise TypeError(
            f"`mask_key` must be None or an id of the layer's `key_dtype`, {key_dtype.name}. "
            + received(mask_key=mask_key)
        )
    if not key_dtype.min <= given <= key_dtype.max:
        raise ValueError(
            f"`mask_key` must be in the range of the layer's `key_dtype`, {key_dtype.name}. "
            + received(mask_key=mask_key)
        )
    return int(given)


def not_padding(ids: Ids, mask_key: int | str | None, mask: Rows | None) -> Rows | None:
    """Returns True for each id that is not padding, a bool tensor of the shape of `ids`.

    `ids` may be a `keras.KerasTensor`. Padding is the id `mask_key`, and where `mask` is False.
    Returns None if neither is given.

    Raises:
        ValueError: `mask` is not bool, or has another shape.
    """
    if (
        isinstance(mask, tf.Tensor)
        and isinstance(ids, tf.Tensor)
        and (mask.dtype != tf.bool or not mask.shape.is_compatible_with(ids.shape))
    ):
        raise ValueError(
            "`mask` must be a bool tensor with the shape of the ids. Received: "
            f"mask.dtype={mask.dtype.name}, mask.shape={mask.shape}, ids.shape={ids.shape}."
        )
    if mask_key is None:
        return mask
    if is_symbolic(ids):
        real = _NotEqual(mask_key)(ids)
        return real if mask is None else keras.ops.logical_and(real, mask)
    if isinstance(ids, tf.SparseTensor):
        mask = mask if mask is None else flat_values(mask)
        return ids.with_values(not_padding(ids.values, mask_key, mask))
    real = tf.not_equal(ids, tf.cast(mask_key, ids.dtype))
    return real if mask is None else tf.logical_and(real, mask)


if not LEGACY:

    @keras.saving.register_keras_serializable(package="de_core")
    class _NotEqual(keras.Operation):
        """Compares ids with one id. Accepts strings and Keras symbolic tensors."""

        def __init__(self, key: int | str) -> None:
            super().__init__()
            self._key = key

        def call(self, ids: Ids) -> tf.Tensor:
            return tf.not_equal(ids, tf.cast(self._key, ids.dtype))

        def compute_output_spec(self, ids: keras.KerasTensor) -> keras.KerasTensor:
            return keras.KerasTensor(ids.shape, dtype="bool")
