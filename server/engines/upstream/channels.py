"""The gRPC channel to a model server, and its options. gRPC reconnects and retries by itself."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ...protos.modules import Protos


@dataclasses.dataclass(frozen=True)
class ChannelOptions:
    """Options of the connections to model servers.

    Attributes:
        max_message_bytes: Largest message, in either direction.
        ca: CA certificates for the servers; plain text if None.
        certificate: Certificate chain and private key of this client, or None.
        token: Sent as `Authorization: Bearer`, if not empty.
    """

    max_message_bytes: int = 64 << 20
    ca: Path | None = None
    certificate: tuple[Path, Path] | None = None
    token: str = ""


def open_channel(target: str, protos: Protos, options: ChannelOptions) -> Any:
    """Opens a grpc.aio channel, which belongs to this event loop. It connects with its first call.

    gRPC retries a request that a server could not take, at most twice, and never a poll. After some
    failures in a row it retries nothing. So a server that fails does not get several times the
    load.
    """
    import grpc

    service_config = {
        "methodConfig": [
            {
                "name": [{"service": protos.prediction_service.name}],
                "retryPolicy": {
                    "maxAttempts": 3,
                    "initialBackoff": "0.01s",
                    "maxBackoff": "0.1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    }
    arguments = (
        ("grpc.service_config", json.dumps(service_config)),
        ("grpc.max_receive_message_length", options.max_message_bytes),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.keepalive_time_ms", 30_000),
        # Without this option, two channels to one target share a connection.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    )
    if options.ca is None:
        return grpc.aio.insecure_channel(target, options=arguments)
    chain = key = None
    if options.certificate:
        chain, key = (path.read_bytes() for path in options.certificate)
    credentials = grpc.ssl_channel_credentials(options.ca.read_bytes(), key, chain)
    return grpc.aio.secure_channel(target, credentials, options=arguments)
