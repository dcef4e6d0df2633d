"""Reading a request body."""

from starlette.types import Receive

from server.api.supervision import ClientGoneError


async def read_body(receive: Receive) -> bytes:
    """Reads a request body to its end.

    Args:
        receive: The request's ASGI channel.

    Raises:
        ClientGoneError: The connection is closed.
    """
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else bytes(chunk)
        chunks.append(chunk)
