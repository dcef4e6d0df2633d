"""Measures how far an exported model's answers differ from the live model's answers."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def on_scores(
    folder: pathlib.Path, signature: str, function: Any, made: Iterable[Mapping[str, tf.Tensor]]
) -> dict[str, dict[str, float]]:
    """Returns the largest and the mean difference of each floating-point output.

    Args:
        folder: The version directory.
        signature: Name of the signature.
        function: The signature of the live model.
        made: The requests: inputs by name.
    """
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
