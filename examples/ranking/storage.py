"""Explains file errors in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from ranking.errors import DataError

# TensorFlow's readers raise IndexError for a truncated file and ValueError for other content.
_STORAGE_ERRORS = (OSError, tf.errors.OpError, IndexError, ValueError)


@contextmanager
def told_as(remedy: str, path: Path | str) -> Iterator[None]:
    """Turns an error of reading or writing `path` into a `DataError` that says the `remedy`."""
    try:
        yield
    except _STORAGE_ERRORS as error:
        said = getattr(error, "message", None) or str(error)
        raise DataError(f"{remedy} Received: {path} ({' '.join(said.split())}).") from error
