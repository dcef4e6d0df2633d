"""Entry point of `python -m server`."""

import os
import signal
import sys

if __name__ == "__main__":
    # The kernel drops signals to a container's first process unless the process handles them.
    # Importing takes seconds. No request is running yet, so a signal ends the process at once.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from .cli import main

    sys.exit(main())
