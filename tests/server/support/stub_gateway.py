"""A gateway over numpy functions: what users run but for TensorFlow, with the same flags."""

from __future__ import annotations

import sys

from server.app import create_app
from server.cli import _parser
from server.lifecycle import Lifecycle
from server.process import GatewayServer, listening_socket, url_of
from server.settings import load_settings
from tests.server.support.numpy_engine import NumpyEngine


def main() -> None:
    flags = {k: v for k, v in vars(_parser().parse_args(sys.argv[1:])).items() if v is not None}
    settings = load_settings(model_dir="unused", **flags)
    lifecycle = Lifecycle()
    listener = listening_socket(settings.host, settings.port)
    server = GatewayServer(create_app(settings, NumpyEngine(), lifecycle), settings, lifecycle)
    print(f"Gateway listens on {url_of(listener, 'http')}", flush=True)
    server.run([listener])


if __name__ == "__main__":
    main()
