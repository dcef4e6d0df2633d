"""The gateway's command: parses flags and runs a gateway, or prints one sentence and exits."""

import argparse
import gc
import logging
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from . import COMMAND
from .errors import StartError
from .observability.logs import configure_logging
from .process.gateway import Gateway
from .process.start_checks import check_start
from .process.workers import WorkerSupervisor, end_with_parent, this_worker
from .settings import (
    ENV_PREFIX,
    Settings,
    drop_service_links,
    flag_of,
    load_settings,
    settings_text,
)

_LOG = logging.getLogger("server")

_EXAMPLES = f"""\
Serve the model in models/ranker/1, and ask it:

  {COMMAND} --model-dir models/ranker
  curl -d '{{"instances": [{{"user": 7, "item": 42}}]}}' \\
       http://127.0.0.1:8501/v1/models/ranker:predict
  curl -d '{{"table": "user", "ids": [7, 8]}}' \\
       http://127.0.0.1:8501/v1/models/ranker:lookup

More requests: GET /v1/models/ranker, /v1/models/ranker/metadata, /v1/models/ranker/tables,
/openapi.json, /readyz, /metrics, and with --ui a page at /ui. After you write models/ranker/2, it
serves within --poll-seconds.

Stand in front of two model servers instead:

  {COMMAND} --engine tfserving --upstreams 10.0.0.1:8500,10.0.0.2:8500 --models ranker
"""


def main(arguments: Sequence[str] | None = None, command: str = COMMAND) -> int:
    """Runs the gateway until a signal stops it.

    Args:
        arguments: The command line without the program's name; by default this process's.
        command: The command's name, for the help text.

    Returns:
        The exit status: 0 after an orderly shutdown, 2 if it could not start.
    """
    # SIGHUP means: read the keys again. A starting gateway reads them anyway, so ignore the signal
    # until the server installs its handler.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    given = list(sys.argv[1:] if arguments is None else arguments)
    flags = vars(_parser(command).parse_args(given))
    only_print = flags.pop("print_settings", False)
    worker = this_worker()
    links = drop_service_links(os.environ)
    try:
        settings = load_settings(**flags)
        if only_print:
            print(settings_text(settings), end="")
            return 0
        configure_logging(settings.log_level)
        if links:
            _LOG.info("ignored variables that Kubernetes sets for services: %s", ", ".join(links))
        # Also in the supervisor: it says once what is missing.
        if settings.tracing:
            try:
                from .observability.tracing import export_spans

                export_spans()
            except ImportError as error:
                raise StartError(
                    f"--tracing needs: pip install 'de-core-gateway[otel]'. Received: {error}"
                ) from None
        if settings.workers > 1 and worker is None:
            check_start(settings)
            return WorkerSupervisor(settings, given).run()
        if worker is not None:
            end_with_parent(worker)
        gateway = Gateway(settings, worker)
        # Modules imported so far are never freed: exclude them from later garbage collections.
        gc.collect()
        gc.freeze()
        return gateway.run_until_stopped()
    except StartError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


# The groups of settings in --help, by their first settings.
_GROUPS = {
    "settings_file": "models",
    "upstreams": "model servers behind the gateway (--engine tfserving)",
    "host": "ports",
    "keys_file": "keys and tokens",
    "workers": "processes, threads and batches",
    "request_seconds": "limits on one request",
    "max_in_flight": "limits on all requests",
    "drain_seconds": "shutdown",
    "log_level": "logs and traces",
}
_METAVARS = ("dir", "name", "host", "port", "seconds", "bytes", "file")


def _parser(command: str = COMMAND) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command,
        description="Gateway for models with dynamic embedding tables. It answers as "
        "TensorFlow Serving does, and looks up embeddings.",
        epilog=_EXAMPLES.replace(COMMAND, command)
        + f"\nThe environment can set every flag: --poll-seconds 5 is {ENV_PREFIX}POLL_SECONDS=5.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--print-settings",
        action="store_true",
        help="print the effective settings as a settings file, and exit",
    )
    for name, field in Settings.model_fields.items():
        if name in _GROUPS:
            group = parser.add_argument_group(_GROUPS[name])
        kind = name.rsplit("_", 1)[-1]
        # `--ui` alone means `--ui true`.
        more: dict[str, Any] = {"nargs": "?", "const": "true"}
        told = str(field.description)
        if field.default not in (None, ""):
            told = f"{told} Default: {field.default}."
        group.add_argument(
            flag_of(name),
            dest=name,
            metavar=kind.upper() if kind in _METAVARS else "VALUE",
            help="\n".join(textwrap.wrap(told, 60)).replace("%", "%%"),
            **(more if field.annotation is bool else {}),
        )
    return parser
