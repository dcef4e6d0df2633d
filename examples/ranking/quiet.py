"""Loads the libraries without their start-up messages."""

from __future__ import annotations

import os
import sys
import tempfile

from ranking.errors import DataError


def load_libraries() -> None:
    """Imports TensorFlow and `de_core`; shows their messages only if that fails.

    Without a GPU, TensorFlow prints a page of messages, in which a reader would overlook the
    example's own output. It prints some of them for every log level and directly to the file
    descriptor, so neither the log level nor `sys.stderr` can hide them.

    Raises:
        DataError: the libraries are not installed.
        ImportError: the libraries do not fit together; the message says how to fix it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow as tf

            import de_core  # noqa: F401

            tf.config.list_logical_devices()  # this prints too
        except ModuleNotFoundError as error:
            raise DataError(
                f"The project must be installed in this environment: run `pip install .` in the "
                f"checkout, or `make demo`. Received: {error}."
            ) from error
        except BaseException:
            said.seek(0)
            os.write(real, said.read())
            raise
        finally:
            os.dup2(real, 2)
            os.close(real)
