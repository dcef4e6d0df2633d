"""Checkpoints: TensorFlow's own, which include the tables."""

from __future__ import annotations

import tensorflow as tf

from de_core.compat.removed import removed_names

Checkpoint = DECheckpoint = tf.train.Checkpoint

__getattr__ = removed_names(
    __name__,
    checkpoint="its DECheckpoint is de.train.DECheckpoint",
    saver="tf.compat.v1.train.Saver includes the tables",
    DEHvdSaver="Horovod is not used; tf.compat.v1.train.Saver includes the tables",
)
