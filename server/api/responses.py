"""JSON responses."""

from collections.abc import Mapping

import orjson
from starlette.responses import Response

from server.errors import HTTP_STATUS, PRIVATE_CODES, ServingError
from server.handlers.answer import Answer


def json_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a response of JSON text."""
    return Response(body, status, headers, media_type="application/json")


def answer_response(answer: Answer) -> Response:
    """Returns the response to a request that a handler answered."""
    if answer.version is None:
        return json_response(answer.body)
    return json_response(answer.body, headers={"x-model-version": str(answer.version)})


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns the response `{"error": message}`."""
    # A message may quote a client's lone surrogate, which has no UTF-8.
    text = message.encode("utf-8", "replace").decode()
    return json_response(orjson.dumps({"error": text}), status, headers)


def serving_error_response(error: ServingError, request_id: str) -> Response:
    """Returns the response to a request that a handler refused.

    Args:
        error: Why.
        request_id: Stands in for messages that are for the log only.
    """
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    message = error.message
    if error.code in PRIVATE_CODES:
        message = f"Internal error. Request id: {request_id}"
    return error_response(HTTP_STATUS[error.code], message, headers)
