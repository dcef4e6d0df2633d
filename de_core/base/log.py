"""Lines of TensorFlow's log that mislead the reader of ours."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def without_lines(part: str) -> Iterator[None]:
    """Keeps lines that contain `part` out of TensorFlow's log while it runs.

    Args:
        part: For example "Assets written to": an export writes into a temporary folder, which has
            another name when the line is read.
    """

    def keeps(record: logging.LogRecord) -> bool:
        return part not in record.getMessage()

    logger = tf.get_logger()
    logger.addFilter(keeps)
    try:
        yield
    finally:
        logger.removeFilter(keeps)
