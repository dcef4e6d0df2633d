"""One model server: its gRPC channel, its load, and its missed polls."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import Code, ServingError, StartError
from ...protos.modules import MODEL_SERVICE, PREDICTION_SERVICE
from ...settings import Settings

_PART = re.compile(r"(?:([\w.-]{1,128})=)?([\w.-]+|\[[0-9a-fA-F:]+\]):([0-9]{1,5})")
# A server that misses this many polls in a row is out of service.
_POLLS = 2
_METHODS = (
    f"/{PREDICTION_SERVICE}/Predict",
    f"/{PREDICTION_SERVICE}/GetModelMetadata",
    f"/{MODEL_SERVICE}/GetModelStatus",
)
# gRPC retries a request that a server could not take, at most twice, and never a poll. After some
# failures in a row it retries nothing. So a server that fails does not get several times the load.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": PREDICTION_SERVICE}],
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


def parse_upstreams(text: str) -> dict[str, str]:
    """Reads the setting: `[NAME=]HOST:PORT`, separated by commas.

    Returns:
        The addresses of the model servers by their public names.

    Raises:
        StartError: A part does not have this form, or a name occurs twice.

    Example:
        >>> parse_upstreams("one=10.0.0.1:8500,localhost:8500")
        {'one': '10.0.0.1:8500', 'upstream-1': 'localhost:8500'}
    """
    addresses: dict[str, str] = {}
    for index, part in enumerate(text.split(",")):
        match = _PART.fullmatch(part.strip())
        if not match or not 0 < int(match[3]) < 65536:
            raise StartError(
                "--upstreams must be [NAME=]HOST:PORT, separated by commas. "
                f"Received: {part.strip()}"
            )
        # Clients never see the address.
        name = match[1] or f"upstream-{index}"
        if name in addresses:
            raise StartError(f"Each upstream must have a different name. Received: {text}")
        addresses[name] = f"{match[2]}:{match[3]}"
    return addresses


def check_client_certificate(settings: Settings) -> None:
    """Raises `StartError` if the certificate for model servers lacks its key, or their CA."""
    certificate, key = settings.upstream_cert, settings.upstream_key
    if (certificate is None) != (key is None) or (certificate and not settings.upstream_ca):
        raise StartError(
            "A certificate for upstreams needs --upstream-ca, --upstream-cert and --upstream-key."
        )


def upstream_token(settings: Settings) -> str:
    """Returns the key or token for the model servers; empty without one.

    Raises:
        StartError: The file holds something else.
    """
    file = settings.upstream_token_file
    token = file.read_text("utf-8", "replace").strip() if file is not None else ""
    if file is not None and not re.fullmatch(r"[!-~]+", token):
        raise StartError(
            "The file must hold one key or token, and nothing else. "
            f"Received: --upstream-token-file={file}"
        )
    return token


class Endpoint:
    """A model server.

    Attributes:
        name: Its public name.
        in_flight: Requests that it runs.
        drained: True if the operator wants no requests sent to it.
        missed: The polls in a row that it has not answered in time. After the first one it gets
            only requests that no other server can answer. After the second one it is out of
            service.
    """

    def __init__(self, name: str, target: str) -> None:
        """Creates the endpoint of the server at `target`, without connecting."""
        self.name = name
        self.in_flight = 0
        self.drained = False
        self.missed = 0
        self._target = target
        self._channel: Any = None
        self._methods: Mapping[str, Callable[..., Any]] = {}
        self._metadata: tuple[tuple[str, str], ...] = ()

    @property
    def answers(self) -> bool:
        """True if it has not missed too many polls."""
        return self.missed < _POLLS

    @property
    def state(self) -> str:
        """`in service` if requests may be sent to it, or else `left out` or `drained`."""
        if self.drained:
            return "drained"
        return "in service" if self.answers else "left out"

    @property
    def in_service(self) -> bool:
        """True if requests may be sent to it."""
        return self.answers and not self.drained

    def open(self, settings: Settings, token: str = "") -> None:
        """Opens the channel, which belongs to this event loop; `token` as for `Authorization`.

        It connects with its first call.
        """
        import grpc

        arguments = (
            ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
            # Requests are limited where they come in, and answers are as large as they are.
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # A model server's errors may be longer than gRPC's clients take: 8 KiB.
            ("grpc.max_metadata_size", 1 << 20),
            ("grpc.absolute_max_metadata_size", 1 << 20),
            ("grpc.keepalive_time_ms", 30_000),
            # Without this option, two channels to one target share a connection.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        )
        ca, key, chain = (
            path and path.read_bytes()
            for path in (settings.upstream_ca, settings.upstream_key, settings.upstream_cert)
        )
        if ca is None:
            channel = grpc.aio.insecure_channel(self._target, options=arguments)
        else:
            credentials = grpc.ssl_channel_credentials(ca, key, chain)
            channel = grpc.aio.secure_channel(self._target, credentials, options=arguments)
        self._channel = channel
        self._methods = {path.rpartition("/")[2]: channel.unary_unary(path) for path in _METHODS}
        if token:
            self._metadata = (("authorization", f"Bearer {token}"),)

    async def close(self) -> None:
        """Closes the channel, and cancels running calls."""
        await self._channel.close()

    async def call(
        self,
        method: str,
        request: bytes,
        timeout: float | None,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        """Sends one request, and returns the answer, both serialized.

        A server without a connection is out of service until it answers a poll.

        `method` is Predict, GetModelMetadata or GetModelStatus. `timeout` is the number of seconds
        until the deadline, and `metadata` are headers.

        Raises:
            ServingError: With the code of the failure. The message never contains the address.
        """
        import grpc

        try:
            answer: bytes = await self._methods[method](
                request, timeout=timeout, metadata=(*self._metadata, *metadata)
            )
            return answer
        except grpc.aio.AioRpcError as error:
            code, message = Code[error.code().name], error.details()
            if code is Code.UNAVAILABLE:
                message = "The model server cannot be reached"
            elif code is Code.DEADLINE_EXCEEDED:
                message = "Deadline exceeded"
            elif code is Code.CANCELLED:
                code, message = Code.UNAVAILABLE, "The model server went away"
            connected = self._channel.get_state() is grpc.ChannelConnectivity.READY
            if code is Code.UNAVAILABLE and not connected:
                self.missed = _POLLS
            raise ServingError(code, message or code.value) from None
