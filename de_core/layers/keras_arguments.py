"""Accepts the arguments of `keras.layers.Embedding` in our layer, and answers other guesses."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import DTypeLike

_OURS = {
    "output_dim": "dim",
    "input_dim": "init_size",
    "embeddings_initializer": "initializer",
}
_BOUND = "Bound a table by its policy: eviction=de.EvictionLRU(max_rows=…)."
#: Arguments without a counterpart, and what to do instead.
_REFUSED = {
    "embeddings_constraint": "A table has no constraint: limit the norm of its rows by `max_norm`.",
    "weights": "A new table is empty: write rows by `layer.table.upsert(ids, rows)`.",
    "lora_rank": "A table has no LoRA rows: leave out `lora_rank`.",
    "input_length": "Inputs may have any length: leave out `input_length`.",
    **dict.fromkeys(("max_rows", "max_size", "capacity"), _BOUND),
    "ttl": "Expire rows by a policy: eviction=de.EvictionTTL(…).",
}


def taken_from(arguments: dict[str, Any], key_dtype: DTypeLike, **given: Any) -> dict[str, Any]:
    """Removes the arguments of `keras.layers.Embedding` and returns ours in their place.

    `given` has our arguments `dim`, `initializer` and `mask_key`. In `arguments`, `input_dim`
    becomes `init_size`.

    Raises:
        TypeError: An argument has no counterpart or contradicts ours, or `dim` is missing.
    """
    dim = given["dim"]
    # The first arguments may be a number of rows and a dim, as in Keras.
    if isinstance(key_dtype, numbers.Integral) and not isinstance(key_dtype, tf.DType):
        raise TypeError(
            "`key_dtype` must be a dtype: a table needs no number of rows, so write "
            f"Embedding({key_dtype}) for rows of {key_dtype} values. "
            + received(dim=dim, key_dtype=key_dtype)
        )
    if dim is not None and "output_dim" in arguments:
        raise TypeError(
            "Pass `dim` or `output_dim`, not both: a table needs no number of rows. "
            + received(dim=dim, output_dim=arguments["output_dim"])
        )
    if "string" in str(arguments.get("dtype")):
        raise TypeError(
            "`dtype` must be the dtype of the rows: pass key_dtype=tf.string for string ids. "
            + received(dtype=arguments["dtype"])
        )
    for name, advice in _REFUSED.items():
        if arguments.pop(name, None) is not None:
            raise TypeError(f"{advice} Received: {name}.")
    for name, own in _OURS.items():
        if name not in arguments:
            continue
        value = arguments.pop(name)
        holder = given if own in given else arguments
        if holder.get(own) not in (None, "auto"):
            raise TypeError(
                f"Pass `{own}` or `{name}`, not both. {received(**{own: holder[own], name: value})}"
            )
        holder[own] = value
    if arguments.pop("mask_zero", False):
        if not tf.as_dtype(key_dtype).is_integer or given["mask_key"] is not None:
            raise TypeError(
                "`mask_zero` needs integer ids and no `mask_key`: name the id that means padding "
                f"by `mask_key` alone. {received(key_dtype=key_dtype, mask_zero=True)}"
            )
        given["mask_key"] = 0
    if given["dim"] is None:
        raise TypeError("`dim` must be the number of values per row. Received: no `dim`.")
    return given


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
