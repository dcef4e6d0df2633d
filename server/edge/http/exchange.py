"""One request to a model: who sends it, how long it may take, and what it is answered with."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.call import begin_call
from server.dataplane.keys import KeyRing, key_of_headers
from server.dataplane.throttle import Places, Throttle
from server.edge.http.raw_paths import raw_path
from server.edge.http.request_info import RequestInfo, request_info
from server.edge.http.responses import error_response, serving_error_response
from server.edge.http.supervision import ClientGoneError, DeadlineError, SlowBodyError, Supervisor
from server.errors import PRIVATE_CODES, Code, ServingError
from server.observability.logs import LOG
from server.settings import Settings
from server.wire.timeouts import timeout_seconds

T = TypeVar("T")

# What a model server behind the gateway may be told of a request.
_FORWARDED = (b"traceparent", b"tracestate")


class Exchange:
    """A request under way, as the planes see it.

    Attributes:
        method: The HTTP method.
        path: The undecoded path, without the query.
        query: The query, undecoded.
        headers: By lower-case name; of several with one name the first.
        info: Its record.
    """

    def __init__(self, scope: Scope, receive: Receive, guard: "Guard") -> None:
        """Makes the exchange; nothing is read yet."""
        self.method: str = scope["method"]
        self.path = raw_path(scope)
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.info: RequestInfo = request_info(scope)
        self._address = (scope.get("client") or ("",))[0]
        self._receive = receive
        self._guard = guard
        self._supervisor = Supervisor()

    def authorize(self, scope: str) -> None:
        """Checks the client's key, and its rate.

        Args:
            scope: What the key must open; empty if any will do.

        Raises:
            ServingError: UNAUTHENTICATED, PERMISSION_DENIED or RESOURCE_EXHAUSTED.
        """
        client = self._address
        if self._guard.keys is not None:
            key = key_of_headers(self.headers.get(b"authorization"), self.headers.get(b"x-api-key"))
            self.info.client = self._guard.keys.check(key, scope)
            client = f"key {self.info.client}"
        self._guard.throttle.admit(client)

    async def body(self) -> bytes:
        """Reads the body."""
        begun = time.perf_counter()
        with self._supervisor.reading(self._guard.body_seconds):
            body = await read_body(self._receive)
        self.info.request_bytes = len(body)
        self.info.call.spent("read", time.perf_counter() - begun)
        return body

    async def answer(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does the work within the request's deadline, as long as the client is there.

        The body must have been read.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if its model has too much to do; what `work` raises.
        """
        with self._guard.throttle.place(self.info.model):
            return await self._answer(work)

    async def _answer(self, work: Callable[[], Awaitable[T]]) -> T:
        seconds = timeout_seconds(
            self.headers.get(b"x-request-timeout-ms"),
            self.headers.get(b"grpc-timeout"),
            self._guard.request_seconds,
        )
        call = self.info.call
        call.deadline = time.monotonic() + seconds
        call.metadata = (
            ("x-request-id", self.info.request_id),
            *(
                (name.decode(), self.headers[name].decode("latin-1"))
                for name in _FORWARDED
                if name in self.headers
            ),
        )
        begin_call(call)
        with self._supervisor.answering(seconds, self._receive):
            return await work()


Respond = Callable[[Exchange], Awaitable[Response]]


class Guard:
    """What holds for every request to a model, whatever API it comes through."""

    def __init__(
        self, settings: Settings, keys: KeyRing | None, throttle: Throttle | None = None
    ) -> None:
        """Makes the guard of an application.

        Args:
            settings: Its limits.
            keys: The keys that open it; None if everyone may ask.
            throttle: What it takes together with other APIs; by itself if not given.
        """
        self.keys = keys
        self.places = Places(settings.max_in_flight)
        self.throttle = throttle or Throttle(settings)
        self.body_seconds = settings.body_seconds
        self.request_seconds = settings.request_seconds

    async def run(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        respond: Respond,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answers one request.

        Args:
            scope: The request.
            receive: Its channel.
            send: Takes the answer.
            respond: Makes the answer, or raises `ServingError`.
            headers: Added to every answer.
        """
        info = request_info(scope)
        try:
            response = await self._respond(scope, receive, respond)
        except ClientGoneError:
            info.status = 499
            return
        for name, value in (headers or {}).items():
            response.headers[name] = value
        info.response_bytes = len(response.body)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, respond: Respond) -> Response:
        info = request_info(scope)
        try:
            self.places.enter()
            try:
                return await respond(Exchange(scope, receive, self))
            finally:
                self.places.leave()
        except ServingError as error:
            if error.code in PRIVATE_CODES:
                LOG.error("%s", error.message, extra={"request_id": info.request_id})
            return serving_error_response(error, info.request_id)
        except SlowBodyError:
            return error_response(
                408,
                f"Request body must arrive within {self.body_seconds:g} seconds",
                {"connection": "close"},
            )
        except DeadlineError:
            return serving_error_response(
                ServingError(Code.DEADLINE_EXCEEDED, "Deadline exceeded"), info.request_id
            )


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
