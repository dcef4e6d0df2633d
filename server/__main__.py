"""Entry point of `python -m server`."""

import os
import signal
import sys

if __name__ == "__main__":
    # The kernel keeps a signal from a container's first process unless that process handles it,
    # and importing takes seconds. Nothing is under way yet, so the process ends at once.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from server.cli import main

    sys.exit(main())
