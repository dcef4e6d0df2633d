"""Writes scalars and histograms for TensorBoard, which need not be installed."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_BINS = 30


class EventFile:
    """A file of TensorBoard's events.

    `tf.summary.scalar` needs TensorBoard, which TensorFlow 2.21 does not install. A file of events
    is a TFRecord file of `Event` messages.

    Args:
        directory: The directory for the file; created if needed.
    """

    def __init__(self, directory: str) -> None:
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._writer = tf.io.TFRecordWriter(str(path / name))
        self._write(file_version="brain.Event:2")

    def write(
        self,
        step: int,
        scalars: Mapping[str, float],
        histograms: Mapping[str, npt.NDArray[np.float64]],
    ) -> None:
        """Writes numbers of one step.

        Args:
            step: The step.
            scalars: Numbers by tag.
            histograms: Values [n] by tag. Values that are not finite are left out.
        """
        v1 = tf.compat.v1
        values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        values += [
            v1.Summary.Value(tag=tag, histo=_histogram(each)) for tag, each in histograms.items()
        ]
        self._write(step=step, summary=v1.Summary(value=values))
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def _write(self, **fields: Any) -> None:
        event = tf.compat.v1.Event(wall_time=time.time(), **fields)
        self._writer.write(event.SerializeToString())


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
