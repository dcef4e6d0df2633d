"""The conditions of every request, over any transport: key, scope, rate, places, deadline, limits.

`DataPlane.answer` checks the client, and `Lease` the model.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from .engines.base import Engine, Servable
from .errors import PRIVATE_CODES, Code, ServingError, invalid
from .keys import KeyRing, key_of_headers
from .limits import Limits, Rate, Shares, Supervisor
from .observability.accounts import Accounts
from .observability.logs import LOG
from .observability.metrics import Metrics
from .request import ModelSpec, Request, begin_request, current_request, deadline_exceeded
from .settings import Settings
from .tensors import LOOKUP_PREFIX, STATS_SIGNATURE, Array, Tensors
from .wire.codec import Codec

T = TypeVar("T")

# To run a signature, a key needs one of these scopes: `lookup` if the signature looks up ids in a
# table or describes the tables, `predict` otherwise.
RUN_SCOPES = ("predict", "lookup")
_MILLISECONDS = re.compile(rb"[0-9]{1,9}")
_DURATION = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# All bodies in memory together may be as large as this many bodies of the largest size. A limit on
# received bytes would not be enough, because a small compressed body can decompress to this size.
_BODIES = 8


@dataclasses.dataclass
class Lifecycle:
    """State that signal handlers and the readiness endpoint share.

    Attributes:
        draining: True once shutdown has begun. `/readyz` fails from then on.
        abandoned: True if a model was still running after everything else had ended.
    """

    draining: bool = False
    abandoned: bool = False


class DataPlane:
    """Admits requests, and leases models to them. Used from one event loop.

    Attributes:
        lifecycle: Says whether the gateway ends.
        accounts: Counts and logs the requests.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        keys: KeyRing | None = None,
        codec: Codec | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the data plane of one process.

        Args:
            engine: Runs the models. Its owner starts and closes it.
            settings: The limits, and the address and TLS of the gRPC port.
            keys: The accepted API keys; None if no key is needed.
            codec: Decodes and encodes bodies; its owner closes it. Created by default.
            clock: Returns the time in seconds, for the limits on requests per second.
        """
        self.engine = engine
        self.keys = keys
        self.lifecycle = Lifecycle()
        self.accounts = Accounts(Metrics(), engine.model_names)
        self.limits = Limits(
            max_elements=settings.max_elements,
            max_ids=settings.max_ids,
            max_bytes=settings.max_decompressed_bytes,
        )
        self.codec = codec or Codec()
        self.settings = settings
        self._client_rate = Rate(settings.rate_per_second, "from one client", clock)
        self.model_rate = Rate(settings.model_rate_per_second, "to one model", clock)
        # Running requests. A request runs once its body has arrived.
        running = "are answered at once"
        self._places = Shares(
            settings.client_in_flight,
            f"requests of one client {running}",
            settings.max_in_flight,
            f"requests {running}",
        )
        self.model_places = Shares(settings.model_in_flight, f"requests to one model {running}")
        # Bodies in memory, after decompression, and large answers that their clients have not taken
        # yet. A client may hold half of them.
        most = _BODIES * settings.max_decompressed_bytes
        held = "may be in memory"
        self._bytes = Shares(
            most // 2, f"bytes of requests of one client {held}", most, f"bytes of requests {held}"
        )

    def ready(self) -> bool:
        """Returns whether the gateway takes traffic."""
        return self.engine.ready() and not self.lifecycle.draining

    async def answer(
        self,
        request: Request,
        scopes: Sequence[str],
        work: Callable[[bytes], Awaitable[T]],
        body: bytes | Callable[[Supervisor], Awaitable[bytes]],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Answers one request.

        Args:
            request: The request's record.
            scopes: The client's key needs one of these scopes; if empty, any known key is enough.
            work: Computes the answer from the body before the deadline.
            body: The body, or a function that reads it and limits the time for it. The request
                takes its places only after its body has arrived.
            gone: Waits until the client disconnects; None if the transport then cancels this task.

        Raises:
            ServingError: UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED,
                DEADLINE_EXCEEDED, or what `work` raises.
            ClientGoneError: The client disconnected.
        """
        client = request.address
        if self.keys is not None:
            headers = request.headers
            key = key_of_headers(headers.get(b"authorization"), headers.get(b"x-api-key"))
            owner = self.keys.owner(key)
            request.client, request.scopes = owner.name, owner.scopes
            _permit(request, scopes)
            client = f"key {owner.name}"
        request.counted_as = client
        self._client_rate.count(client)
        try:
            with Supervisor() as supervisor:
                if isinstance(body, bytes):
                    self.receive(request, len(body))
                else:
                    body = await body(supervisor)
                self._places.take(client)
                try:
                    seconds = timeout_seconds(request.headers, self.settings.request_seconds)
                    if request.timeout is not None:
                        seconds = min(seconds, request.timeout)
                    request.deadline = time.monotonic() + seconds
                    begin_request(request)
                    supervisor.bound(seconds, deadline_exceeded, gone)
                    return await work(body)
                finally:
                    self._places.give(client)
        finally:
            self._bytes.give(client, request.received_bytes)
            if self.accounts.tracing is not None:  # the span ends with the answer
                self.accounts.tracing.describe(request)

    def receive(self, request: Request, count: int) -> None:
        """Counts bytes of a request's body as they arrive. `answer` subtracts them again.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many bytes are held.
        """
        self._bytes.take(request.counted_as, count)
        request.received_bytes += count

    @contextlib.contextmanager
    def sending(self, request: Request, count: int) -> Iterator[None]:
        """Counts the bytes of an answer while the block sends it.

        The answer is never refused, because its work is done. Later requests are refused instead.
        """
        self._bytes.add(request.counted_as, count)
        try:
            yield
        finally:
            self._bytes.give(request.counted_as, count)

    def run(
        self, servable: Servable, signature: str, inputs: Tensors
    ) -> Awaitable[dict[str, Array]]:
        """Runs a signature of a leased version; raises as `Servable.run`.

        Raises:
            ServingError: PERMISSION_DENIED if the client's key lacks the scope of the signature,
                INVALID_ARGUMENT for inputs beyond a limit.
        """
        if self.keys is not None:
            permit_signature(signature)
        values = self.limits.check_tensors(inputs)
        if signature.startswith(LOOKUP_PREFIX):
            self.limits.check_count(values, "ids")
        return servable.run(signature, inputs)


class Lease:
    """Context manager that leases a version of a model to the current request.

    `DataPlane.run` runs its signatures. The generator of `contextlib.asynccontextmanager` would
    take three times as long.
    """

    __slots__ = ("_plane", "_servable", "_spec")

    def __init__(self, plane: DataPlane, spec: ModelSpec) -> None:
        """Creates the lease of the version that `spec` selects when the block begins."""
        self._plane, self._spec = plane, spec

    async def __aenter__(self) -> Servable:
        """Begins the lease; raises as `Engine.lease`.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if the model has too many requests.
        """
        plane, name = self._plane, self._spec.name
        self._servable = servable = await plane.engine.lease(self._spec)
        try:
            # Count only here, where the model is known to exist. The limits remember names, and
            # clients could fill the memory with invented ones.
            plane.model_rate.count(name)
            plane.model_places.take(name)
        except ServingError:
            servable.release()
            raise
        return servable

    async def __aexit__(self, *_: object) -> None:
        self._plane.model_places.give(self._spec.name)
        self._servable.release()


def timeout_seconds(headers: Mapping[bytes, bytes], most: float) -> float:
    """Returns the seconds that a request may take.

    The header `x-request-timeout-ms` takes precedence over `grpc-timeout`. `most` is the gateway's
    own limit.

    Raises:
        ServingError: INVALID_ARGUMENT for a malformed header.

    Example:
        >>> timeout_seconds({b"x-request-timeout-ms": b"250"}, 60.0)
        0.25
        >>> timeout_seconds({b"grpc-timeout": b"2M"}, 60.0)
        60.0
    """
    milliseconds = headers.get(b"x-request-timeout-ms")
    if milliseconds is not None:
        if not _MILLISECONDS.fullmatch(milliseconds) or not int(milliseconds):
            raise invalid(
                "X-Request-Timeout-Ms must be a whole number of milliseconds above 0. "
                f"Received: {milliseconds.decode('latin-1')}"
            )
        return min(int(milliseconds) / 1000, most)
    duration = headers.get(b"grpc-timeout")
    if duration is not None:
        match = _DURATION.fullmatch(duration)
        if not match:
            raise invalid(
                "grpc-timeout must be a number of up to 8 digits and one of H, M, S, m, u, n. "
                f"Received: {duration.decode('latin-1')}"
            )
        return min(int(match[1]) * _UNIT_SECONDS[match[2]], most)
    return most


def permit_signature(signature: str) -> None:
    """Raises `ServingError` (PERMISSION_DENIED) if the client's key lacks the signature's scope."""
    request = current_request()
    if request.scopes is not None:
        of_tables = signature.startswith(LOOKUP_PREFIX) or signature == STATS_SIGNATURE
        _permit(request, ("lookup",) if of_tables else ("predict",))


def _permit(request: Request, scopes: Sequence[str]) -> None:
    if request.scopes is not None and scopes and request.scopes.isdisjoint(scopes):
        raise ServingError(
            Code.PERMISSION_DENIED,
            f"The key of {request.client} does not open the scope {' or '.join(scopes)}. "
            f"It opens: {', '.join(sorted(request.scopes)) or 'nothing'}",
        )


def public_error(error: ServingError, request: Request) -> ServingError:
    """Returns the error that the client may see.

    An error about the server, not the request, goes to the log. The client gets only the request's
    id.
    """
    if error.code not in PRIVATE_CODES:
        return error
    LOG.error("%s", error.message, extra={"request_id": request.id})
    return ServingError(error.code, f"Internal error. Request id: {request.id}")
