"""Entry point of `python -m server`."""

import sys

from server.cli import main

if __name__ == "__main__":
    sys.exit(main())
