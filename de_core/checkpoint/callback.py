"""The Keras callback that writes incremental checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from de_core.base.batch_count import BatchCount
from de_core.base.checks import check_integer
from de_core.base.keras import keras
from de_core.checkpoint.manager import Manager


class IncrementalCheckpoint(keras.callbacks.Callback):
    """Saves a model's tables, other weights and optimizer with a `Manager` during training.

    Args:
        directory: Directory of the checkpoints.
        save_freq: "epoch", or the number of batches between saves. With `steps_per_execution` a
            save waits for the end of Keras's call.
        restore: True to restore the newest complete checkpoint, if any, before a model's first
            `fit` with this callback. A later `fit` goes on where the previous one ended.
        **options: Arguments of the `Manager`.

    Raises:
        TypeError: `save_freq` is neither "epoch" nor an integer.
        ValueError: `save_freq` is not positive.

    Example:
    >>> import tempfile, tensorflow as tf, de_core as de
    >>> model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2)])
    >>> model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD()), "mse")
    >>> callback = IncrementalCheckpoint(tempfile.mkdtemp(), save_freq=2)
    >>> ids, labels = tf.range(8, dtype=tf.int64), tf.zeros([8, 2])
    >>> history = model.fit(ids, labels, batch_size=2, verbose=0, callbacks=[callback])
    >>> len(callback.manager.checkpoints)
    2
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        save_freq: Literal["epoch"] | int = "epoch",
        restore: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if save_freq != "epoch":
            check_integer("save_freq", save_freq, 1)
        self._directory = os.fspath(directory)
        self._save_freq = save_freq
        self._restore = restore
        self._options = options
        self._count = BatchCount(None if save_freq == "epoch" else int(save_freq))
        self._manager: Manager | None = None
        self._trained: Any = None  # the model of the manager; `evaluate` may set another model

    @property
    def manager(self) -> Manager:
        """The manager that writes the checkpoints. It is created when training first begins.

        Raises:
            RuntimeError: Training has not begun.
        """
        if self._manager is None:
            raise RuntimeError(
                "Training must have begun, because it creates the manager. "
                "Received: no training. Call fit first."
            )
        return self._manager

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Creates the manager and restores the newest checkpoint, before a model's first `fit`."""
        del logs
        if self._trained is self.model:  # a later fit goes on where the previous one ended
            return
        model, optimizer = self.model, self.model.optimizer
        # Build the optimizer first. Otherwise its variables would be restored only when they are
        # created, and a save before that would omit them. The first batch builds other models, and
        # then their optimizers.
        is_built = not hasattr(optimizer, "build") or getattr(optimizer, "built", True)
        if model.built and not is_built:
            optimizer.build(model.trainable_variables)
        manager = Manager(model, self._directory, **self._options)
        if self._restore:
            manager.restore()
        self._manager, self._trained = manager, model

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Saves after every `save_freq` batches."""
        del logs
        if self._count.is_due(batch):
            self.manager.save()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Saves if `save_freq` is "epoch"."""
        del epoch, logs
        if self._save_freq == "epoch":
            self.manager.save()

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Waits for compaction in the background."""
        del logs
        self.manager.wait()
