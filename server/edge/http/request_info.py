"""The record that accompanies a request through the layers."""

import dataclasses

from starlette.types import Scope

from server.call import Call

_KEY = "gateway.request"


@dataclasses.dataclass
class RequestInfo:
    """What is known of a request by now.

    Attributes:
        request_id: Sent back as `x-request-id`, and written to the log.
        verb: What is asked for, once the path is parsed.
        model: Of which model, once the path is parsed.
        client: Whose key it came with, if keys are needed.
        status: The status answered; 499 if the client left before; 0 before either.
        request_bytes: Size of the body received.
        response_bytes: Size of the body sent.
        call: Its way through handlers and engine.
    """

    request_id: str
    verb: str = "other"
    model: str = ""
    client: str = ""
    status: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    call: Call = dataclasses.field(default_factory=Call)


def attach(scope: Scope, info: RequestInfo) -> None:
    """Makes `info` the record of the request that `scope` belongs to."""
    scope[_KEY] = info


def request_info(scope: Scope) -> RequestInfo:
    """Returns the record of the request that `scope` belongs to."""
    info: RequestInfo = scope[_KEY]
    return info
