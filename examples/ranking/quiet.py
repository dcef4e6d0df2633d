"""Loading the libraries without their start-up messages."""

from __future__ import annotations

import os
import sys
import tempfile

from ranking.errors import DataError


def load_libraries() -> None:
    """Imports TensorFlow and `de_core`; what they print is shown only if that fails.

    On a machine without a GPU TensorFlow writes a page about it, some of it whatever the log level,
    straight to the file descriptor: there a new user would look for the example's own words.

    Raises:
        DataError: they are not installed.
        ImportError: they do not fit together; the message says how to mend it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow as tf

            import de_core  # noqa: F401

            tf.config.list_logical_devices()  # which prints, too
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
