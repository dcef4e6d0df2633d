"""Entry point of `python -m de_core_cli`, for a checkout that is not installed."""

from __future__ import annotations

import sys

from de_core_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
