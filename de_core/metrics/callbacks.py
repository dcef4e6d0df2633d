"""Keras callbacks that watch tables."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from de_core.base.batch_count import BatchCount
from de_core.base.checks import check_integer
from de_core.base.keras import keras
from de_core.metrics.monitor import PERCENTILES, Monitor

__all__ = ["TableMetrics"]
_BINS = 30  # of a histogram
# Numbers that a reading may lack.
_OF_LOOKUPS_AND_STEPS = ("hit_rate", "miss_rate", "gradient_norm")
_OF_SAMPLED_ROWS = (*(f"row_norm_p{percent}" for percent in PERCENTILES), "row_norm_max")


class TableMetrics(keras.callbacks.Callback):
    """Records the numbers of all tables of a model while it trains.

    At the end of each epoch the numbers go into Keras's logs, as `<table>/<number>`, so that
    `History`, `CSVLogger` and every other logger show them. `de.metrics.Monitor.read` describes
    the numbers.

    Args:
        log_dir: A directory for TensorBoard, with scalars and a histogram of row norms per table;
            None for no files.
        every: Write into `log_dir` after this many batches; None for after each epoch.
        sample: The number of rows per table whose norms are computed. 0 for none.

    Raises:
        TypeError: `every` is neither None nor an integer, or `sample` is not an integer.
        ValueError: `every` is less than 1, or `sample` is negative.

    Example:
    >>> import keras
    >>> import numpy as np
    >>> import de_core as de
    >>> layer = de.layers.Embedding(2, name="users", optimizer="adam")
    >>> model = keras.Sequential([layer, keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(
    ...     np.arange(8),
    ...     np.ones([8, 1]),
    ...     verbose=0,
    ...     callbacks=[de.callbacks.TableMetrics()],
    ... )
    >>> history.history["users/rows"], history.history["users/updates"]
    ([8], [1])
    """

    def __init__(
        self, log_dir: str | None = None, every: int | None = None, sample: int = 4096
    ) -> None:
        super().__init__()
        check_integer("every", every, 1, or_none=True)
        check_integer("sample", sample, 0)
        self._log_dir = None if log_dir is None else str(log_dir)
        self._every = every
        self._sample = sample
        self._writer: Any = None
        self._monitor: Any = None
        self._count = BatchCount(every)

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the tables, and opens the directory for TensorBoard."""
        del logs
        self._monitor = None
        with contextlib.suppress(ValueError):  # the first batch may make the tables
            self._find_tables()
        if self._log_dir is not None:
            self._writer = tf.summary.create_file_writer(self._log_dir)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes the numbers if it is this batch's turn."""
        del logs
        self._find_tables()
        if self._count.is_due(batch) and self._writer:
            self._write(self._monitor.read())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the numbers to Keras's logs, and writes them."""
        del epoch
        numbers = self._monitor.read()
        if self._writer and self._every is None:
            self._write(numbers)
        if logs is not None:
            # Loggers need the same numbers after each epoch.
            sampled = _OF_SAMPLED_ROWS if self._sample else ()
            absent = dict.fromkeys((*_OF_LOOKUPS_AND_STEPS, *sampled), np.nan)
            logs.update(_tagged({name: {**absent, **numbers[name]} for name in numbers}))

    def on_train_end(self, logs: Any = None) -> None:
        """Closes the files."""
        del logs
        if self._writer:
            self._writer.close()
            self._writer = None

    def _find_tables(self) -> None:
        if self._monitor is None:
            self._monitor = Monitor(self.model, self._sample)

    def _write(self, numbers: dict[str, dict[str, float]]) -> None:
        v1 = tf.compat.v1.Summary
        values = [v1.Value(tag=tag, simple_value=each) for tag, each in _tagged(numbers).items()]
        for table, norms in self._monitor.row_norms.items():
            values.append(v1.Value(tag=f"{table}/row_norms", histo=_histogram(norms)))
        # `tf.summary.scalar` needs TensorBoard, which TensorFlow 2.21 does not install.
        with self._writer.as_default(step=self._count.batches):
            tf.summary.experimental.write_raw_pb(v1(value=values).SerializeToString())
        self._writer.flush()


def _tagged(numbers: dict[str, dict[str, float]]) -> dict[str, float]:
    """Returns the numbers of all tables by `<table>/<number>`."""
    return {
        f"{table}/{part}": value
        for table, values in numbers.items()
        for part, value in values.items()
    }


def _histogram(values: npt.NDArray[np.float64]) -> Any:
    values = values[np.isfinite(values)]
    if not len(values):
        return tf.compat.v1.HistogramProto()
    counts, edges = np.histogram(values, _BINS)
    return tf.compat.v1.HistogramProto(
        min=values.min(),
        max=values.max(),
        num=len(values),
        sum=values.sum(),
        sum_squares=np.square(values).sum(),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )
