"""Creates an API key: `python -m server.keys NAME predict lookup`."""

import argparse
import hashlib
import secrets
import sys
from collections.abc import Sequence

from . import COMMAND
from .services.credentials import SCOPES


def main(arguments: Sequence[str] | None = None) -> int:
    """Creates a key and prints it with its entry for the keys file; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND}.keys",
        description="Makes an API key. It is shown once; the line goes into --keys-file, "
        "under `keys:`.",
    )
    parser.add_argument("name", help="whose key it is")
    parser.add_argument("scope", nargs="+", choices=SCOPES, help="what it opens")
    options = parser.parse_args(arguments)
    key = secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    scopes = ", ".join(options.scope)
    print(f"key: {key}")
    print(f"  - {{name: {options.name}, scopes: [{scopes}], sha256: {digest!r}}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
