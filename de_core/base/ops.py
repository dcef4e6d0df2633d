"""The compiled ops, loaded once.

``ops.library`` has one function for each op that ``cc/ops`` registers, such as `de_table_find`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base import environment

#: The module of generated op functions.
library: Any = tf.load_op_library(environment.library_path())
