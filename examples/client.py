"""Requests scores and embedding rows from a running gateway, with the standard library only.

python examples/client.py --model ranking --user u17 --item i3 --item i400
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

TIMEOUT_SECONDS = 30


class GatewayError(Exception):
    """The gateway refused or is not running; the message says which, and what to do."""


class Client:
    """A model behind a gateway.

    Example:
        >>> client = Client("http://127.0.0.1:8501", "ranking")
        >>> client.predict([{"user_id": "u17", "item_id": "i3"}])  # doctest: +SKIP
        [0.8137]
    """

    def __init__(self, url: str, model: str) -> None:
        self.base = f"{url.rstrip('/')}/v1/models/{urllib.parse.quote(model, safe='')}"

    def predict(self, instances: list[dict[str, Any]]) -> list[Any]:
        """Returns the model's output for each instance, a value per input name."""
        return self._ask(":predict", {"instances": instances})["predictions"]

    def lookup(self, table: str, ids: list[str]) -> tuple[list[list[float]], list[bool]]:
        """Returns the row of each id, and whether the table holds it."""
        answer = self._ask(":lookup", {"table": table, "ids": ids})
        return answer["embeddings"], answer["found"]

    def tables(self) -> list[dict[str, Any]]:
        """Describes the tables that answer now: rows, generation, time of creation and more."""
        return self._ask("/tables")["tables"]

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        url = self.base + path
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise GatewayError(f"{url} answered {error.code}: {text}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise GatewayError(
                f"A gateway must run at {url} (start one: python -m server --model-dir DIR). "
                f"Received: {error!r}."
            ) from error


def ask(client: Client, user: str, items: Sequence[str]) -> None:
    """Prints the user's score of each item, and the user's row from both endpoints."""
    instances = [{"user_id": user, "item_id": item} for item in items]
    print(f"POST {client.base}:predict")
    print(f"  asked  {json.dumps({'instances': instances})}")
    print(f"  answer {json.dumps({'predictions': client.predict(instances)})}")
    print(f"POST {client.base}:lookup")
    print(f"  asked  {json.dumps({'table': 'user', 'ids': [user]})}")
    (row,), (found,) = client.lookup("user", [user])
    shown = ", ".join(f"{number:.4f}" for number in row[:4])
    print(f"  answer {len(row)} numbers, [{shown}, ...], found: {json.dumps(found)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Requests a user's scores for items, and the user's row, from a gateway."
    )
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="(%(default)s)")
    parser.add_argument("--model", default="ranking", help="name of the model (%(default)s)")
    parser.add_argument("--user", required=True, help="a user's id, known or unknown")
    parser.add_argument("--item", required=True, action="append", help="an item's id; repeatable")
    options = parser.parse_args(arguments)
    try:
        ask(Client(options.url, options.model), options.user, options.item)
    except GatewayError as error:
        print(f"client.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
