"""The compiled ops, loaded once.

``ops.library`` has one function for each op that ``cc/ops`` registers, such as `de_table_find`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base import environment

#: The module of generated op functions.
library: Any = tf.load_op_library(environment.library_path())


def file_metadata(entries: Sequence[str | bytes]) -> list[str | bytes]:
    """Returns alternating keys and values as the `metadata` of an op that writes a snapshot file.

    TensorFlow runs an eager op by the kernel of an earlier one if their attributes look alike, and
    of long strings in a list it compares the ends only. A digest tells all entries apart.
    """
    packed = repr(list(entries)).encode("utf-8", "surrogateescape")
    return [*entries, "de.digest", f"{zlib.crc32(packed):08x}"]
