"""One model server: its channels, its load, and its health."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from ...errors import Code, ServingError
from ...protos.modules import Protos
from .breaker import Breaker
from .channels import ChannelOptions, Channels

_PART = re.compile(r"(?:([\w.-]{1,128})=)?([\w.-]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")


class UpstreamsError(Exception):
    """An invalid list of upstreams; the message says why."""


@dataclasses.dataclass(frozen=True)
class UpstreamAddress:
    """A model server's address, and its public name."""

    name: str
    target: str


def parse_upstreams(text: str) -> list[UpstreamAddress]:
    """Reads the setting: `[NAME=]HOST:PORT`, separated by commas.

    Raises:
        UpstreamsError: A part does not have this form, or a name occurs twice.

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
        # Clients never see the address.
        name = match[1] or f"upstream-{index}"
        addresses.append(UpstreamAddress(name, f"{match[2]}:{match[3]}"))
    names = [address.name for address in addresses]
    if len(set(names)) < len(names):
        raise UpstreamsError(f"Each upstream must have a different name. Received: {text}")
    return addresses


class Endpoint:
    """A model server."""

    def __init__(self, address: UpstreamAddress, breaker: Breaker) -> None:
        """Creates the endpoint without connecting."""
        self.name = address.name
        self.breaker = breaker
        self.in_flight = 0
        self.drained = False
        self._target = address.target
        self._channels: Channels | None = None

    def open(self, protos: Protos, options: ChannelOptions) -> None:
        """Creates the channels, which belong to this event loop. They connect on demand."""
        self._channels = Channels(self._target, protos, options)

    async def close(self) -> None:
        """Closes the channels."""
        if self._channels is not None:
            await self._channels.close()

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        """Sends one request, and returns the answer, both serialized.

        Args:
            method: Name of the method, of any service.
            request: The serialized message.
            timeout: Seconds until the deadline.
            metadata: Headers.

        Raises:
            ServingError: With the code of the failure. The message never contains the address.
        """
        import grpc

        assert self._channels is not None
        try:
            return await self._channels.call(method, request, timeout, metadata)
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
