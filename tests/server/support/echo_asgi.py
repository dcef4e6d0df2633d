"""A minimal ASGI application: the baseline for the gateway's CPU time and latency.

It reads the body and sends it back. `/send/N` reads the body and sends N bytes. It runs under
uvicorn with uvicorn's own settings and protocol, without access log. With `--gateway` it runs under
the gateway's settings and protocol.
"""

import sys

from uvicorn import Config, Server

from server.process.server import _config, listening_socket, url_of
from server.settings import load_settings

_CONTENT = memoryview(bytes(1 << 20))


async def app(scope, receive, send):
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    if scope["path"].startswith("/send/"):
        body = _CONTENT[: int(scope["path"].rpartition("/")[2])]
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    listener = listening_socket("127.0.0.1", 0)
    print(f"Gateway listens on {url_of(listener, 'http')}", flush=True)
    if "--gateway" in sys.argv:
        config = _config(app, load_settings(model_dir="unused"), "off")
    else:
        config = Config(app, lifespan="off", ws="none", log_config=None, access_log=False)
    Server(config).run([listener])
