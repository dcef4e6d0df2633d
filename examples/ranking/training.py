"""Training with a checkpoint after every epoch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf

from ranking.batches import Batches
from ranking.errors import DataError
from ranking.interactions import Interactions
from ranking.model import build_model

# TensorFlow's readers raise IndexError for a truncated file and ValueError for other content.
_STORAGE_ERRORS = (OSError, tf.errors.OpError, IndexError, ValueError)


@dataclass(frozen=True)
class TrainingOptions:
    """Options of the training.

    Attributes:
        epochs: passes over the training interactions, including the passes of the resumed run.
        dim: length of an embedding row.
        batch_size: examples per step, negatives included.
        seed: seed of initial rows, order and negatives.
        checkpoint_dir: folder for a checkpoint after each epoch; None saves nothing.
        resume: continue from the last checkpoint in `checkpoint_dir`.
    """

    epochs: int = 5
    dim: int = 16
    batch_size: int = 2048
    seed: int = 0
    checkpoint_dir: Path | None = None
    resume: bool = False


def train(log: Interactions, options: TrainingOptions) -> keras.Model:
    """Trains a new model, or continues with a saved one, on `log`.

    Raises:
        DataError: there is no checkpoint to resume from.
    """
    keras.utils.set_random_seed(options.seed)
    model = build_model(options.dim, options.seed)
    batches = Batches(log, batch_size=options.batch_size, seed=options.seed)
    epochs_done = tf.Variable(0, dtype=tf.int64, trainable=False)
    callbacks: list[keras.callbacks.Callback] = [_SetEpoch(batches)]
    if options.checkpoint_dir is not None:
        checkpoint = tf.train.Checkpoint(
            model=model, optimizer=model.optimizer, epochs_done=epochs_done
        )
        manager = tf.train.CheckpointManager(checkpoint, options.checkpoint_dir, max_to_keep=2)
        if options.resume:
            model.optimizer.build(model.trainable_variables)  # creates slots
            _restore(manager)
        callbacks.append(_SaveEpoch(manager, epochs_done))
    model.fit(
        batches.dataset(),
        shuffle=False,  # `Batches` shuffles
        initial_epoch=int(epochs_done),
        epochs=options.epochs,
        callbacks=callbacks,
        # A progress bar on a terminal, one line per epoch in a file or a pipe.
        verbose=1 if sys.stdout.isatty() else 2,
    )
    return model


def _restore(manager: tf.train.CheckpointManager) -> None:
    if manager.latest_checkpoint is None:
        raise DataError(
            f"--resume needs a checkpoint: run once without it. "
            f"Received: --checkpoint-dir {manager.directory}, which has none."
        )
    remedy = "--resume must find a whole checkpoint of a run with the same log, --dim and --seed."
    with told_as(remedy, manager.latest_checkpoint):
        manager.checkpoint.restore(manager.latest_checkpoint).assert_consumed()


class _SetEpoch(keras.callbacks.Callback):
    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self._batches = batches

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        self._batches.epoch = epoch


class _SaveEpoch(keras.callbacks.Callback):
    def __init__(self, manager: tf.train.CheckpointManager, epochs_done: tf.Variable) -> None:
        super().__init__()
        self._manager = manager
        self._epochs_done = epochs_done

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:  # noqa: ARG002
        self._epochs_done.assign(epoch + 1)
        with told_as("--checkpoint-dir must have room for a checkpoint.", self._manager.directory):
            self._manager.save(checkpoint_number=epoch + 1)


@contextmanager
def told_as(remedy: str, path: Path | str) -> Iterator[None]:
    """Turns an error of reading or writing `path` into a `DataError` that says the `remedy`."""
    try:
        yield
    except _STORAGE_ERRORS as error:
        said = getattr(error, "message", None) or str(error)
        raise DataError(f"{remedy} Received: {path} ({' '.join(said.split())}).") from error
