"""Refuses to restore checkpoints of `tfra.dynamic_embedding` as if they were checkpoints of ours.

TensorFlow restores the objects that it finds under the same path, and skips all others silently. So
it would restore the ordinary variables and leave all tables empty.
"""

from __future__ import annotations

import functools
import re

import tensorflow as tf

from de_core.base.checks import received

_TABLE = re.compile(
    r"(?:.+/)?(?:tables_of_[^/]+/\d+/\.ATTRIBUTES/table|[^/]+_mht_\d+of\d+)"
    r"-(?:keys|shard_upsert_restore)"
)
#: How to read files of tfra, for errors.
REMEDY = (
    "Run `de-core import-tfra` to turn them into a checkpoint, or call "
    "de_core.tfra.import_checkpoint(path, target)"
)


def refuse(prefix: str | None) -> None:
    """Raises if a checkpoint holds tables of tfra. TensorFlow calls it before it restores anything.

    Call it in `_checkpoint_adapter`, of every object that a program with tables can restore.

    Args:
        prefix: The checkpoint's prefix. None if TensorFlow does not tell it.

    Raises:
        ValueError: The checkpoint holds tables of tfra.
    """
    if prefix is None or not tf.io.gfile.exists(f"{prefix}.index"):
        return
    if _has_tables(prefix, tf.io.gfile.stat(f"{prefix}.index").mtime_nsec):
        raise ValueError(
            "A checkpoint of tfra.dynamic_embedding must be imported, because TensorFlow would "
            f"leave its tables empty. {received(path=prefix)} {REMEDY} in place of `restore` or "
            "`load_weights`."
        )


@functools.lru_cache(maxsize=4)  # a model asks once for each table
def _has_tables(prefix: str, changed: int) -> bool:
    del changed
    # tf.train.list_variables takes a prefix for a folder on ram://, where a prefix has files.
    reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    return any(map(_TABLE.fullmatch, reader.get_variable_to_shape_map()))
