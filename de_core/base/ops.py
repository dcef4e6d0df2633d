"""The compiled ops, loaded once.

``ops.library.de_table_find(...)`` and so on: one function for each op that ``cc/ops`` registers.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base import environment

#: Module of the generated op functions.
library: Any = tf.load_op_library(environment.library_path())
