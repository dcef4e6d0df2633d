"""A minimal ASGI application: the baseline for the gateway's CPU time.

It reads the body and sends it back. `/send/N` answers with N bytes.
"""

import socket

import uvicorn

_CONTENT = memoryview(bytes(1 << 20))


async def app(scope, receive, send):
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"].startswith("/send/"):
        body = _CONTENT[: int(scope["path"].rpartition("/")[2])]
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(body)})


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"Gateway listens on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, lifespan="off", log_level="error", access_log=False, ws="none")
    uvicorn.Server(config).run([listener])
