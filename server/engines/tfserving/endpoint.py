"""One model server: its channel, how much it does, and whether it answers."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from server.engines.tfserving.breaker import Breaker
from server.engines.tfserving.protos import Protos
from server.errors import Code, ServingError

_PART = re.compile(r"(?:([\w.-]{1,128})=)?([\w.-]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")
_MAX_RECONNECT_MS = 1000


class UpstreamsError(Exception):
    """A list of upstreams that cannot be used; the message says why."""


@dataclasses.dataclass(frozen=True)
class UpstreamAddress:
    """Where a model server listens, and what it is called outside."""

    name: str
    target: str


def parse_upstreams(text: str) -> list[UpstreamAddress]:
    """Reads the setting: `[NAME=]HOST:PORT`, separated by commas.

    Raises:
        UpstreamsError: A part is not of that form, or a name occurs twice.

    Example:
        >>> [each.name for each in parse_upstreams("one=10.0.0.1:8500,localhost:8500")]
        ['one', 'upstream-1']
    """
    addresses = []
    for index, part in enumerate(text.split(",")):
        match = _PART.fullmatch(part.strip())
        if not match or not 0 < int(match[3]) < 65536:
            raise UpstreamsError(
                "--upstreams must be [NAME=]HOST:PORT, separated by commas. "
                f"Received: {part.strip()}"
            )
        # The address itself is never told to clients.
        name = match[1] or f"upstream-{index}"
        addresses.append(UpstreamAddress(name, f"{match[2]}:{match[3]}"))
    names = [address.name for address in addresses]
    if len(set(names)) < len(names):
        raise UpstreamsError(f"Each upstream must have a name of its own. Received: {text}")
    return addresses


@dataclasses.dataclass(frozen=True)
class ChannelOptions:
    """How model servers are connected to.

    Attributes:
        max_message_bytes: Largest message, either way.
        ca: Certificates that they are checked by; plain text if None.
    """

    max_message_bytes: int = 64 << 20
    ca: Path | None = None


class Endpoint:
    """A model server. Its channel belongs to the event loop that it is opened in."""

    def __init__(self, address: UpstreamAddress, breaker: Breaker) -> None:
        """Makes the endpoint; nothing is connected yet."""
        self.name = address.name
        self.breaker = breaker
        self.in_flight = 0
        self.drained = False
        self._target = address.target
        self._channel: Any = None
        self._stubs: tuple[Any, Any] = (None, None)

    def open(self, protos: Protos, options: ChannelOptions) -> None:
        """Makes the channel; connecting happens by itself."""
        import grpc

        arguments: Sequence[tuple[str, int]] = (
            ("grpc.max_receive_message_length", options.max_message_bytes),
            ("grpc.max_send_message_length", options.max_message_bytes),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", _MAX_RECONNECT_MS),
        )
        if options.ca is None:
            self._channel = grpc.aio.insecure_channel(self._target, options=arguments)
        else:
            credentials = grpc.ssl_channel_credentials(options.ca.read_bytes())
            self._channel = grpc.aio.secure_channel(self._target, credentials, options=arguments)
        self._stubs = (
            protos.prediction_service.PredictionServiceStub(self._channel),
            protos.model_service.ModelServiceStub(self._channel),
        )

    async def close(self) -> None:
        """Closes the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def call(
        self,
        method: str,
        request: Any,
        timeout: float | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Any:
        """Sends one request.

        Args:
            method: Name of the method, of either service.
            request: The message.
            timeout: Seconds.
            metadata: Headers.

        Raises:
            ServingError: With the code of the failure; the message never names the address.
        """
        import grpc

        stub = self._stubs[method == "GetModelStatus"]
        try:
            return await getattr(stub, method)(request, timeout=timeout, metadata=tuple(metadata))
        except grpc.aio.AioRpcError as error:
            raise _serving_error(error) from None


def _serving_error(error: Any) -> ServingError:
    code = Code[error.code().name]
    if code is Code.UNAVAILABLE:
        return ServingError(code, "The model server cannot be reached", retry_after=1.0)
    if code is Code.DEADLINE_EXCEEDED:
        return ServingError(code, "Deadline exceeded")
    if code is Code.CANCELLED:
        return ServingError(Code.UNAVAILABLE, "The model server went away", retry_after=1.0)
    return ServingError(code, error.details() or code.value)
