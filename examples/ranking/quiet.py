"""Loading TensorFlow without its start-up messages."""

from __future__ import annotations

import os
import sys
import tempfile


def load_tensorflow() -> None:
    """Imports TensorFlow and looks for devices; what they print is shown only if that fails.

    On a machine without a GPU TensorFlow writes a page about it, some of it whatever the log level,
    straight to the file descriptor: there a new user would look for the example's own words.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    real = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow as tf

            tf.config.list_logical_devices()
        except BaseException:
            said.seek(0)
            os.write(real, said.read())
            raise
        finally:
            os.dup2(real, 2)
            os.close(real)
