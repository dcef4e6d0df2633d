"""Reading a request body."""

import asyncio

from starlette.types import Receive


class ClientGoneError(Exception):
    """The client closed the connection before it had sent its request."""


class SlowBodyError(Exception):
    """The client did not send its request in the time it has."""


async def read_body(receive: Receive, seconds: float) -> bytes:
    """Reads a request body to its end.

    Args:
        receive: The request's ASGI channel.
        seconds: How long the client may take.

    Raises:
        ClientGoneError: The connection is closed.
        SlowBodyError: The time is up.
    """
    # Cheaper than asyncio.wait_for, which would start a task for every request.
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        if task is not None:
            task.cancel()

    timer = loop.call_later(seconds, expire)
    try:
        return await _read(receive)
    except asyncio.CancelledError:
        if not expired:
            raise
        if task is not None and hasattr(task, "uncancel"):
            task.uncancel()
        raise SlowBodyError from None
    finally:
        timer.cancel()


async def _read(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else bytes(chunk)
        chunks.append(chunk)
