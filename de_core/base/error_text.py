"""What an error says, in the words meant for a person."""

from __future__ import annotations

import re

import tensorflow as tf

# Where in a graph it happened, which TensorFlow writes around an op's own message.
_AROUND = re.compile(r"^(\{\{[^}]*\}\}\s*)+|\s*\[Op:\w+\](\s*name:\s*\S*)?\s*$")


def error_text(error: BaseException) -> str:
    """Returns the message of an error, of one of TensorFlow's without what it puts around it.

    Args:
        error: Any.

    Example:
    >>> text = "{{function_node __wrapped__DeX}} a.de: the file is damaged [Op:DeX] name: "
    >>> error_text(tf.errors.DataLossError(None, None, text))
    'a.de: the file is damaged'
    """
    if isinstance(error, tf.errors.OpError):
        return _AROUND.sub("", error.message)
    return str(error)
