"""A client for ASGI applications that lets the test choose every byte of a request."""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI

from server.app import create_app
from server.settings import load_settings
from tests.server.support.numpy_engine import NumpyEngine

PREDICT = ("POST", "/v1/models/m:predict", b'{"instances": [1.0]}')
LOOKUP = ("POST", "/v1/models/m:lookup", b'{"table": "user", "ids": [7]}')


def make_app(engine: Any = None, *, plane: Any = None, keys: Any = None, **flags: Any) -> FastAPI:
    """Returns a gateway's application that serves the model `m` of numpy functions."""
    settings = load_settings(model_dir="x", **flags)
    return create_app(settings, engine or NumpyEngine(), plane=plane, keys=keys)


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
    body: Any = b"",
    headers: dict[str, str] | None = None,
    take: Callable[[], Awaitable[None]] | None = None,
    leaves: float = 3600,
) -> Reply:
    """Sends one request. A list of bytes is a body in pieces, and other bodies become JSON.

    A body in pieces has no length. At a piece that is None the client stops sending. The client
    takes each part of the answer when `take` returns, and leaves after so many seconds.
    """
    if not isinstance(body, bytes | list):
        body = json.dumps(body).encode()
    pieces = [body] if isinstance(body, bytes) else list(body)
    sent: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    end = loop.time() + leaves

    async def receive() -> dict[str, Any]:
        if not pieces or pieces[0] is None:
            await asyncio.sleep(end - loop.time())
            return {"type": "http.disconnect"}
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def collect(message: dict[str, Any]) -> None:
        sent.append(message)
        if take is not None:
            await take()

    await app(scope_of(method, path, headers), receive, collect)
    start = sent[0]
    return Reply(
        start["status"],
        {k.decode(): v.decode() for k, v in start["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


def scope_of(method: str, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    target, _, query = path.partition("?")
    return {
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


def ask(
    app: Any, method: str, path: str, *args: Any, run: Any = asyncio.run, **kwargs: Any
) -> Reply:
    """Starts an application, sends one request, and stops it."""

    async def work() -> Reply:
        async with app.router.lifespan_context(app):
            return await send(app, method, path, *args, **kwargs)

    return run(work())
