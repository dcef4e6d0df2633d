"""The gRPC side of a request: its record, and its answer or error."""

import string
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import grpc

from ..dependencies import DataPlane, public_error
from ..errors import Code, ServingError
from ..observability.accounts import new_id
from ..observability.logs import LOG
from ..request import Request

# A function that answers one request. Request and answer are serialized messages.
Work = Callable[[Request, bytes], Awaitable[bytes]]
# A method's name in the metrics, its scopes, and its handler. A client's key needs one of the
# scopes; if they are None, the method needs no key.
Method = tuple[str, Sequence[str] | None, Work]


def service(plane: DataPlane, name: str, /, **methods: Method) -> Any:
    """Returns a generic handler for `grpc.aio.Server.add_generic_rpc_handlers`.

    It connects a service of gRPC to the data plane. Messages arrive and leave as bytes. `name` is
    the service's full name.
    """
    handlers = {
        key: grpc.unary_unary_rpc_method_handler(partial(_handle, plane, f"/{name}/{key}", method))
        for key, method in methods.items()
    }
    return grpc.method_handlers_generic_handler(name, handlers)


async def _handle(plane: DataPlane, path: str, method: Method, body: bytes, context: Any) -> bytes:
    verb, scopes, work = method
    headers: dict[bytes, bytes] = {}
    for name, value in context.invocation_metadata() or ():
        text = value.encode() if isinstance(value, str) else value
        headers.setdefault(name.encode(), text)
    # `ipv4:ADDRESS:PORT`, or `ipv6:%5BADDRESS%5D:PORT`; REST writes the address alone for the
    # same client.
    _, _, peer = unquote(str(context.peer())).partition(":")
    request = Request(
        id=new_id(),
        path=path.encode(),
        headers=headers,
        address=peer.rpartition(":")[0].strip("[]") or peer,
        timeout=context.time_remaining(),
        verb=verb,
    )
    begun = time.perf_counter()
    plane.accounts.begin(request)
    code, message = Code.CANCELLED, ""
    try:
        if scopes is None:
            answer = await work(request, body)
        else:
            answer = await plane.answer(request, scopes, partial(work, request), body)
        code = Code.OK
        request.sent_bytes = len(answer)
        return answer
    except ServingError as error:
        code, message = error.code, public_error(error, request).message
    except Exception:
        LOG.exception("request failed", extra={"request_id": request.id})
        code, message = Code.INTERNAL, f"Internal error. Request id: {request.id}"
    finally:
        request.status = code.http
        plane.accounts.end(request, time.perf_counter() - begun)
    del body  # gRPC keeps the error of `abort`, and with it the names of this frame
    # gRPC sends the message percent-encoded, in at most 8 KiB of metadata.
    sent = quote(message, safe=string.punctuation.replace("%", " "), errors="replace")
    if len(sent) > 7000:
        message = unquote(sent[:7000], errors="ignore") + "…"
    await context.abort(getattr(grpc.StatusCode, code.value), message)
    raise AssertionError("abort raises")
