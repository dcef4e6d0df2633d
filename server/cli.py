"""`python -m server`: flags in, a running gateway or one sentence out."""

import argparse
import gc
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from server.app import create_app
from server.engines.embedded import EmbeddedEngine, EmbeddedOptions
from server.engines.model_folder import ModelFolder, ModelFolderError
from server.engines.saved_model import MissingDependencyError, load_tensorflow
from server.lifecycle import Lifecycle
from server.observability.logs import configure_logging
from server.process import GatewayServer, StartError, listening_socket
from server.settings import ENV_PREFIX, Settings, SettingsError, flag_of, load_settings

_EXAMPLES = """\
Serve the model that lies in models/ranker/1, and ask it:

  python -m server --model-dir models/ranker
  curl -d '{"instances": [{"user": 7, "item": 42}]}' \\
       http://127.0.0.1:8501/v1/models/ranker:predict
  curl -d '{"table": "user", "ids": [7, 8]}' \\
       http://127.0.0.1:8501/v1/models/ranker:lookup

What there is: GET /v1/models/ranker, /v1/models/ranker/metadata, /v1/models/ranker/tables,
/openapi.json, /readyz, /metrics. Write models/ranker/2 and it serves within --poll-seconds.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the gateway until it is told to stop.

    Args:
        arguments: The command line without the program's name; this process's if None.

    Returns:
        The exit status: 0 after a stop in order, 2 if it could not start.
    """
    flags = {
        name: value
        for name, value in vars(_parser().parse_args(arguments)).items()
        if value is not None
    }
    try:
        settings = load_settings(**flags)
        folder = ModelFolder(settings.model_dir, settings.model_name)
        folder.check()
        listener = listening_socket(settings.host, settings.port)
        configure_logging(settings.log_level, settings.log_format)
        load_tensorflow()
    except (SettingsError, ModelFolderError, StartError, MissingDependencyError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    # What is imported by now stays: later collections need not look at it again.
    gc.collect()
    gc.freeze()
    engine = EmbeddedEngine(
        EmbeddedOptions(
            folder=folder,
            poll_seconds=settings.poll_seconds,
            threads=settings.threads,
            max_waiting=settings.max_waiting,
        )
    )
    lifecycle = Lifecycle()
    server = GatewayServer(create_app(settings, engine, lifecycle), settings, lifecycle)
    host, port = listener.getsockname()[:2]
    print(f"Gateway listens on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    server.run([listener])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m server",
        description="REST gateway for models with dynamic embedding tables. It answers as "
        "TensorFlow Serving does, and looks embeddings up.",
        epilog=_EXAMPLES + f"\nEvery flag can be given in the environment: --poll-seconds 5 is "
        f"{ENV_PREFIX}POLL_SECONDS=5.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, field in Settings.model_fields.items():
        parser.add_argument(
            flag_of(name),
            dest=name,
            metavar=_metavar(name),
            help="\n".join(textwrap.wrap(_help(field), 60)).replace("%", "%%"),
        )
    return parser


def _help(field: Any) -> str:
    text = str(field.description)
    if field.is_required():
        return f"{text} Required."
    return text if field.default in (None, "") else f"{text} Default: {field.default}."


def _metavar(name: str) -> str:
    last = name.rsplit("_", 1)[-1]
    return last.upper() if last in ("dir", "name", "host", "port", "seconds", "bytes") else "VALUE"
