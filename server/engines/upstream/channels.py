"""The connections to one model server. More calls at once open more, up to a limit."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...protos.modules import Protos

_MAX_RECONNECT_MS = 1000


@dataclasses.dataclass(frozen=True)
class ChannelOptions:
    """Options of the connections to model servers.

    Attributes:
        max_message_bytes: Largest message, in either direction.
        ca: CA certificates for the servers; plain text if None.
        certificate: Certificate chain and private key of this client, or None.
        token: Sent as `Authorization: Bearer`, if not empty.
        channels: Connections to one server.
    """

    max_message_bytes: int = 64 << 20
    ca: Path | None = None
    certificate: tuple[Path, Path] | None = None
    token: str = ""
    channels: int = 2


@dataclasses.dataclass
class _Channel:
    channel: Any
    methods: Mapping[str, Any]
    refusing: Any
    in_flight: int = 0

    def refuses(self) -> bool:
        """Returns whether calls fail at once because the last attempt to connect failed."""
        return bool(self.channel.get_state() is self.refusing)


class Channels:
    """Channels to one target. They belong to the event loop that opens them.

    A server or proxy limits the calls per connection (often to 100), and gRPC lets further calls
    wait silently. So each call takes the channel with the fewest calls. A channel connects with its
    first call, so the second one connects only when two calls run at once.

    A channel that could not connect refuses calls until its next attempt to connect. The channels
    attempt at different times, so when a server returns, one channel may connect a second before
    another. So a call takes a refusing channel only if all channels refuse.
    """

    def __init__(self, target: str, protos: Protos, options: ChannelOptions) -> None:
        """Creates the channels. They connect on demand."""
        self._channels = [_open(target, protos, options) for _ in range(options.channels)]
        self._metadata = (("authorization", f"Bearer {options.token}"),) if options.token else ()

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        """Sends one request; arguments as `Endpoint.call`, raises grpc.aio's errors."""
        chosen = self._choose()
        chosen.in_flight += 1
        try:
            answer: bytes = await chosen.methods[method](
                request, timeout=timeout, metadata=(*self._metadata, *metadata)
            )
            return answer
        finally:
            chosen.in_flight -= 1

    def _choose(self) -> _Channel:
        fewest = min(self._channels, key=_load)
        if not fewest.refuses():
            return fewest
        return min(
            (each for each in self._channels if not each.refuses()), key=_load, default=fewest
        )

    async def close(self) -> None:
        """Closes the channels and cancels running calls."""
        for each in self._channels:
            await each.channel.close()


def _load(channel: _Channel) -> int:
    return channel.in_flight


def _open(target: str, protos: Protos, options: ChannelOptions) -> _Channel:
    import grpc

    arguments: Sequence[tuple[str, int]] = (
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.enable_retries", 0),
        # Without this option, channels to one target share one connection.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", _MAX_RECONNECT_MS),
    )
    if options.ca is None:
        channel = grpc.aio.insecure_channel(target, options=arguments)
    else:
        chain, key = (
            (path.read_bytes() for path in options.certificate)
            if options.certificate
            else (None, None)
        )
        credentials = grpc.ssl_channel_credentials(options.ca.read_bytes(), key, chain)
        channel = grpc.aio.secure_channel(target, credentials, options=arguments)
    return _Channel(
        channel,
        {
            method: channel.unary_unary(f"/{service.name}/{method}")
            for service in (protos.prediction_service, protos.model_service)
            for method in service.methods
        },
        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
    )
