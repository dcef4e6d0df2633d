"""A client for ASGI applications that lets the test choose every byte of a request."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json()["error"]


async def send(
    app: Any,
    method: str,
    path: str,
    body: bytes | list[bytes | None] = b"",
    headers: dict[str, str] | None = None,
) -> Reply:
    """Sends one request; a list of bodies is sent in pieces, without a length.

    At a piece that is None the client stops sending.
    """
    target, _, query = path.partition("?")
    pieces = [body] if isinstance(body, bytes) else list(body)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": target,
        "raw_path": target.encode("latin-1"),
        "query_string": query.encode(),
        "headers": [
            (k.lower().encode(), v.encode())
            for k, v in {"host": "gateway", **(headers or {})}.items()
        ],
        "state": {},
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not pieces or pieces[0] is None:
            await asyncio.sleep(3600)
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def collect(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, collect)
    start = sent[0]
    return Reply(
        start["status"],
        {k.decode(): v.decode() for k, v in start["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


def ask(app: Any, method: str, path: str, *args: Any, **kwargs: Any) -> Reply:
    """Starts an application, sends one request, and stops it."""

    async def run() -> Reply:
        async with app.router.lifespan_context(app):
            return await send(app, method, path, *args, **kwargs)

    return asyncio.run(run())
