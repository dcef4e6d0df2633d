"""Responses of HTTP handlers, in JSON and other formats."""

from collections.abc import Mapping

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.dataplane.answer import JSON, Answer
from server.errors import HTTP_STATUS, Code, ServingError

# Larger bodies are sent in pieces. Each piece waits until the connection took the previous one.
_PIECE_BYTES = 256 << 10


class PiecewiseResponse(Response):
    """A response that sends a large body piece by piece, as fast as the client reads."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        if len(self.body) <= _PIECE_BYTES:
            await super().__call__(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        view = memoryview(self.body)
        for start in range(0, len(view), _PIECE_BYTES):
            await send(
                {
                    "type": "http.response.body",
                    "body": bytes(view[start : start + _PIECE_BYTES]),
                    "more_body": start + _PIECE_BYTES < len(view),
                }
            )


def json_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a response of JSON text."""
    return PiecewiseResponse(body, status, headers, media_type=JSON)


def answer_response(answer: Answer) -> Response:
    """Returns the response for a handler's answer."""
    headers = dict(answer.headers)
    if answer.version is not None:
        headers["x-model-version"] = str(answer.version)
    return PiecewiseResponse(answer.body, 200, headers, media_type=answer.media_type)


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns the response `{"error": message}`."""
    # A message may quote a lone surrogate from the client, which UTF-8 cannot encode.
    text = message.encode("utf-8", "replace").decode()
    return json_response(orjson.dumps({"error": text}), status, headers)


def serving_error_response(error: ServingError) -> Response:
    """Returns the response for a public error."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    elif error.code is Code.UNAVAILABLE:
        headers["retry-after"] = "1"
    if error.code is Code.UNAUTHENTICATED:
        headers["www-authenticate"] = 'Bearer realm="gateway"'
    return error_response(HTTP_STATUS[error.code], error.message, headers)
