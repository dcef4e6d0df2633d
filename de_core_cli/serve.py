"""The verb `serve`: runs the gateway."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pathlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

from de_core_cli.library import CommandError

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


def add(verbs: Any) -> None:
    """Adds the verb to a parser, for the list of verbs. The gateway parses its flags itself."""
    verbs.add_parser("serve", help="serve models over HTTP and gRPC", add_help=False)


def run(arguments: Sequence[str]) -> int:
    """Runs the gateway until a signal stops it, and returns its exit status.

    Raises:
        CommandError: The gateway is not installed.
    """
    # The kernel drops signals to a container's first process unless the process handles them.
    # Importing takes seconds. No request is running yet, so a signal ends the process at once.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if importlib.util.find_spec("de_core_gateway") is not None:
        name = "de_core_gateway.cli"
    elif (_CHECKOUT / "server" / "cli.py").is_file():
        name = "server.cli"
        sys.path.insert(0, str(_CHECKOUT))
    else:
        raise _missing("de_core_gateway")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise _missing(str(error.name)) from error
    return int(module.main(list(arguments), "de-core serve"))


def _missing(module: str) -> CommandError:
    return CommandError(
        f"Serving needs the gateway. Received: no module {module!r}. "
        "Run: pip install 'de-core[server]'"
    )
