"""Parses the command line and runs a verb. Errors become one line and an exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from de_core_cli import (
    cat,
    diff,
    doctor,
    inspect,
    library,
    plan,
    publish,
    rm_key,
    serve,
    tfra,
    verify,
)

_EPILOG = """\
PATH is a snapshot file (.de), a Keras file (.keras, .weights.h5), a directory that
de.checkpoint.save wrote, the prefix of a TensorFlow checkpoint (training/ckpt-12), or a version
that de.export or de.publish wrote.

examples:
  What is in a checkpoint, and is it whole?
    de-core inspect training/ckpt-12
    de-core verify training/ckpt-12
  Serve a model, and ask it:
    de-core serve --model-dir models/ranker
  All rows of a table for pandas:
    de-core cat training/ckpt-12 --table users --format parquet --output users.parquet

`de-core VERB --help` has examples of each verb.
exit status: 0 done; 1 not done, damaged, or different; 2 wrong usage.
"""
_VERBS = (inspect, verify, diff, cat, publish, tfra, rm_key, serve, plan, doctor)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="de-core",
        description="Works with the files of growing embedding tables, and serves them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = result.add_subparsers(dest="verb", required=True, metavar="VERB")
    for module in _VERBS:
        module.add(verbs)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if arguments[:1] == ["serve"]:  # the gateway parses its own flags
            status = serve.run(arguments[1:])
        else:
            options = parser().parse_args(arguments)
            # A verb on files needs no GPU, and must not take one from a trainer.
            os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            status = int(options.run(options) or 0)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("de-core: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        # Bad input, a full disk or a missing package cause these. Others are faults of this code.
        expected = [library.CommandError, OSError, ValueError, TypeError, ImportError, MemoryError]
        if (tensorflow := sys.modules.get("tensorflow")) is not None:
            expected.append(tensorflow.errors.OpError)
        if not isinstance(error, tuple(expected)):
            raise
        print(f"de-core: {library.line_of(error)}", file=sys.stderr)
        return 1
