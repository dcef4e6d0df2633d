"""Entry point of the gateway's command and of `python -m`."""

import os
import signal
import sys


def main() -> int:
    """Runs the gateway with this process's command line; returns the exit status."""
    # The kernel drops signals to a container's first process unless the process handles them.
    # Importing takes seconds. No request is running yet, so a signal ends the process at once.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from .cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
