"""All settings, declared once: flags, environment, file and `--help` come from here.

The order of precedence is flag, environment, settings file, default.
`--poll-seconds 5`, `DE_GATEWAY_POLL_SECONDS=5` and `poll_seconds: 5` in the file are the same.
"""

import os
import re
from collections.abc import MutableMapping
from ipaddress import IPv6Address, ip_network
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from . import COMMAND
from .errors import StartError

ENV_PREFIX = "DE_GATEWAY_"
# Matches the variables that Kubernetes sets for a service whose name begins with `de-gateway`.
_LINK_NAME = re.compile(
    ENV_PREFIX + r"(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://[\w.:\[\]-]+:\d+")


class Settings(BaseSettings):
    """The gateway's settings. The text below each one is its description, in `--help` too."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )

    settings_file: Path | None = None
    """YAML or JSON file of settings. It has the flags' names, with _ for -."""
    engine: Literal["embedded", "tfserving"] = "embedded"
    """Where the models run: in this process (embedded), or on model servers with TensorFlow
    Serving's gRPC (tfserving)."""
    model_dir: Path | None = Field(None, validate_default=True)
    """Folder of the models: either numbered version folders of one model (DIR/1/saved_model.pb),
    or one such folder per model, named as the model (DIR/ranker/1/saved_model.pb). The gateway
    loads versions that appear later. Required by the embedded engine."""
    model_name: str | None = Field(None, min_length=1)
    """Name of the model, if the folder holds only one. By default the name of the folder,
    or of the link to it."""
    version_policy: str = Field(
        "latest", pattern=r"^(latest(:[1-9][0-9]{0,3})?|all|[0-9]{1,19}(,[0-9]{1,19})*)$"
    )
    """Versions to serve: latest, latest:N, all, or numbers as in 1,3."""
    labels: str = ""
    """Labels of versions at the start: stable=1,canary=2, or with several models ranker:stable=1.
    The admin port can change them."""
    routes_file: Path | None = None
    """File that keeps labels and the traffic split across restarts."""
    warm_up: bool = True
    """Run a version before it takes traffic: the requests in its
    assets.extra/tf_serving_warmup_requests, or else one row of zeros per signature."""
    poll_seconds: float = Field(2.0, gt=0, le=1e9)
    """Seconds between two checks for new versions."""
    upstreams: str = Field("", validate_default=True)
    """Model servers of the tfserving engine: [NAME=]HOST:PORT, separated by commas. Required by
    that engine."""
    models: str = Field("", validate_default=True)
    """Models of the tfserving engine, separated by commas. Required by that engine."""
    upstream_ca: Path | None = None
    """CA certificates (PEM) for upstreams; without it connections are plain text."""
    upstream_cert: Path | None = None
    """Client certificate chain (PEM) for upstreams; needs --upstream-ca and --upstream-key."""
    upstream_key: Path | None = None
    """Private key (PEM) of --upstream-cert."""
    upstream_token_file: Path | None = None
    """File with the API key or token for upstreams that are gateways."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every network interface."""
    port: int = Field(8501, ge=0, le=65535)
    """Port to listen on; 0 for any free one."""
    grpc_port: int | None = Field(None, ge=0, le=65535)
    """Port of the gRPC services, on the same address; 0 for any free one. No gRPC by default."""
    admin_port: int | None = Field(None, ge=0, le=65535)
    """Port of the admin API; needs --keys-file or --jwt-keys-file. No admin port by default."""
    admin_host: str = "127.0.0.1"
    """Address of the admin API."""
    tls_cert: Path | None = None
    """Certificate chain (PEM) for HTTPS; needs --tls-key."""
    tls_key: Path | None = None
    """Private key (PEM) of --tls-cert."""
    tls_client_ca: Path | None = None
    """CA certificates (PEM) for client certificates, then required; needs --tls-cert."""
    cors_origin: str = ""
    """Web origin whose pages may call the gateway; * for all; none if empty."""
    trusted_proxies: str = ""
    """Addresses or networks of proxies, separated by commas, as in 10.0.0.5,10.1.0.0/16. The
    gateway trusts X-Forwarded-For and X-Forwarded-Proto only from these."""
    ui: bool = False
    """Serve the page at /ui."""
    keys_file: Path | None = Field(
        None,
        description=f"File of API keys, see `{COMMAND}.keys --help`. With it every "
        "request to a model needs a key.",
    )
    jwt_keys_file: Path | None = None
    """File of public keys (a JSON Web Key Set). A token that one of them signed can replace an API
    key. Needs de-core-gateway[jwt], --jwt-issuer and --jwt-audience."""
    jwt_issuer: str = ""
    """Issuer of the tokens (their `iss`)."""
    jwt_audience: str = ""
    """Audience of the tokens (their `aud`)."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that share the port, each with its own engine."""
    threads: int = Field(4, ge=1, le=1024)
    """Requests that run models at once."""
    batch_rows: int = Field(0, ge=0)
    """Rows of the largest micro-batch (embedded engine); 0 for none. Only for models that compute
    each row by itself."""
    batch_delay_ms: float = Field(2.0, ge=0, le=1000)
    """Milliseconds that a row may wait for its batch."""
    request_seconds: float = Field(60.0, gt=0, le=1e9)
    """Seconds until an answer is due. A client may set a shorter time with X-Request-Timeout-Ms or
    grpc-timeout."""
    head_seconds: float = Field(10.0, gt=0, le=1e9)
    """Seconds for a client to send a request's head."""
    body_seconds: float = Field(30.0, gt=0, le=1e9)
    """Seconds for a client to send its request body, or to take 256 KiB of an answer."""
    max_header_bytes: int = Field(32 << 10, ge=256)
    """Largest head of a request, in bytes."""
    max_body_bytes: int = Field(32 << 20, ge=1)
    """Largest request body in bytes, as sent."""
    max_decompressed_bytes: int = Field(64 << 20, ge=1)
    """Largest request body in bytes, after decompression."""
    max_elements: int = Field(4_000_000, ge=1)
    """Values in one request."""
    max_ids: int = Field(100_000, ge=1)
    """Ids or bags in one lookup, or examples in one request."""
    max_in_flight: int = Field(1024, ge=1)
    """Requests that run at once; further ones get a 429."""
    client_in_flight: int = Field(512, ge=1)
    """Requests of one key or address at once; further ones get a 429."""
    rate_per_second: float = Field(5000.0, ge=0)
    """Requests per second from one key or address, per process; 0 for no limit."""
    model_in_flight: int = Field(512, ge=1)
    """Requests to one model at once, so that other models get some too."""
    model_rate_per_second: float = Field(10_000.0, ge=0)
    """Requests per second to one model, per process; 0 for no limit."""
    drain_seconds: float = Field(5.0, ge=0, le=1e9)
    """Seconds after SIGTERM in which /readyz fails and requests are still accepted, so that load
    balancers can switch first. Ctrl-C skips this."""
    shutdown_seconds: float = Field(30.0, gt=0, le=1e9)
    """Seconds for running requests to finish at shutdown."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least important message to log."""
    log_sample: float = Field(0.0, ge=0, le=1)
    """Fraction of the answered requests to log."""
    tracing: bool = False
    """Export OpenTelemetry spans as the OTEL_ variables say. Needs de-core-gateway[otel]."""

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",") if name.strip()]
        for index, name in enumerate(names):
            network = ip_network(name)
            first = network.network_address
            # A client that reaches an IPv6 socket by IPv4 counts by its IPv4 address.
            if isinstance(first, IPv6Address) and first.ipv4_mapped and network.prefixlen >= 96:
                names[index] = f"{first.ipv4_mapped}/{network.prefixlen - 96}"
        return ",".join(names)

    # Before the conversion: an empty path becomes the current folder.
    @field_validator("model_dir", "upstreams", "models", mode="before")
    @classmethod
    def _needed(cls, value: Any, info: ValidationInfo) -> Any:
        engine = info.data.get("engine", "embedded")
        needed = engine == ("embedded" if info.field_name == "model_dir" else "tfserving")
        if needed and not value:
            raise PydanticCustomError("missing", "Field required")
        return value


for _field in Settings.model_fields.values():
    # Pydantic keeps the line breaks of a docstring.
    _field.description = " ".join((_field.description or "").split())


def load_settings(**flags: Any) -> Settings:
    """Reads the settings. Calls `drop_service_links` first.

    Args:
        **flags: Settings from the command line; they override the environment.

    Raises:
        StartError: A setting is missing, unknown or out of range. Each problem has its line.

    Example:
        >>> load_settings(model_dir="models", port="9000").port
        9000
    """
    drop_service_links(os.environ)
    given, problems = _from_file(
        flags.get("settings_file") or os.environ.get(f"{ENV_PREFIX}SETTINGS_FILE")
    )
    problems += [
        f"{name} is not a setting of the gateway: see --help for those that are."
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX)
        and name.removeprefix(ENV_PREFIX).lower() not in Settings.model_fields
    ]
    try:
        environment = {name for name in given if f"{ENV_PREFIX}{name.upper()}" in os.environ}
        from_file = {name: value for name, value in given.items() if name not in environment}
        settings = Settings(**{**from_file, **flags})
    except ValidationError as error:
        problems += [_problem(entry["loc"], entry["msg"], entry) for entry in error.errors()]
        raise StartError("\n".join(problems)) from None
    if problems:
        raise StartError("\n".join(problems))
    return settings


def drop_service_links(environment: MutableMapping[str, str]) -> list[str]:
    """Removes variables that Kubernetes sets for services, because they look like settings.

    A service called `de-gateway` sets `DE_GATEWAY_PORT=tcp://10.0.0.1:8501`, for example.

    Returns:
        The names of the removed variables, sorted.
    """
    links = sorted(
        name
        for name, value in environment.items()
        if name.startswith(ENV_PREFIX)
        and (_LINK_NAME.fullmatch(name) or _LINK_ADDRESS.fullmatch(value))
    )
    for name in links:
        del environment[name]
    return links


def settings_text(settings: Settings) -> str:
    """Returns the effective settings in the format of a settings file. None of them is a secret."""
    import yaml

    values = settings.model_dump(mode="json", exclude_none=True, exclude={"settings_file"})
    return str(yaml.safe_dump(values, sort_keys=False))


def _from_file(path: str | Path | None) -> tuple[dict[str, Any], list[str]]:
    """Returns the settings in the file, and the problems with it."""
    if not path:
        return {}, []
    # PyYAML comes with uvicorn[standard]. JSON is also YAML.
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        return {}, [f"The settings file must be readable YAML or JSON. Received: {path}: {reason}"]
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        return {}, [f"The settings file must hold settings by name. Received: {path}"]
    unknown = [str(name) for name in content if name not in Settings.model_fields]
    problems = [
        f"{name} in {path} is not a setting of the gateway: see --help for those that are."
        for name in sorted(unknown)
    ]
    return {k: v for k, v in content.items() if k in Settings.model_fields}, problems


def flag_of(name: str) -> str:
    """Returns the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def _problem(location: tuple[int | str, ...], message: str, entry: Any) -> str:
    name = str(location[0]) if location else "settings"
    where = f"{flag_of(name)} (or {ENV_PREFIX}{name.upper()})"
    if entry["type"] == "missing":
        return f"{where} must be given: {Settings.model_fields[name].description}"
    return f"{where}: {message}. Received: {entry['input']}"
