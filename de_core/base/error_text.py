"""Extracts the readable part of an error's message."""

from __future__ import annotations

import re

import tensorflow as tf

# The graph location that TensorFlow adds around an op's own message.
_AROUND = re.compile(r"^(\{\{[^}]*\}\}\s*)+|\s*\[Op:\w+\](\s*name:\s*\S*)?\s*$")


def error_text(error: BaseException) -> str:
    """Returns an error's message without the graph location that TensorFlow adds.

    Example:
    >>> text = "{{function_node __wrapped__DeX}} a.de: the file is damaged [Op:DeX] name: "
    >>> error_text(tf.errors.DataLossError(None, None, text))
    'a.de: the file is damaged'
    """
    if isinstance(error, tf.errors.OpError):
        return _AROUND.sub("", error.message)
    return str(error)
