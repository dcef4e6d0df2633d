"""Everything that can be set, declared once: flags, environment, file and `--help` come from here.

A flag wins over the environment, the environment over the settings file, that over the default.
`--poll-seconds 5`, `DE_GATEWAY_POLL_SECONDS=5` and `poll_seconds: 5` in the file are the same.
"""

import os
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "DE_GATEWAY_"


class SettingsError(Exception):
    """Settings that cannot be used; the message lists every problem, one a line."""


class Settings(BaseSettings):
    """The gateway's settings."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, protected_namespaces=()
    )

    settings_file: Path | None = Field(
        default=None,
        description="YAML or JSON file of settings, named as the flags with _ for -.",
    )
    engine: Literal["embedded", "tfserving"] = Field(
        default="embedded",
        description="Who runs the models: this process (embedded), or model servers that "
        "speak TensorFlow Serving's gRPC (tfserving).",
    )
    model_dir: Path | None = Field(
        default=None,
        validate_default=True,
        description="Folder of the models: either numbered version folders of one model "
        "(DIR/1/saved_model.pb), or several folders of that kind, each a model of its name "
        "(DIR/ranker/1/saved_model.pb). Versions that appear later are picked up. "
        "Required by the embedded engine.",
    )
    model_name: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the model, if the folder holds one. "
        "The name of the folder if not given.",
    )
    version_policy: str = Field(
        default="latest",
        pattern=r"^(latest(:[1-9][0-9]{0,3})?|all|[0-9]{1,19}(,[0-9]{1,19})*)$",
        description="Versions to serve: latest, latest:N, all, or numbers as in 1,3.",
    )
    labels: str = Field(
        default="",
        description="Names of versions at the start: stable=1,canary=2; with several models "
        "ranker:stable=1. The admin port changes them.",
    )
    routes_file: Path | None = Field(
        default=None,
        description="File that keeps labels and traffic split over restarts.",
    )
    warm_up: bool = Field(
        default=True,
        description="Run a version before it takes traffic: the requests in its "
        "assets.extra/tf_serving_warmup_requests, else one row of zeros for each signature.",
    )
    upstreams: str = Field(
        default="",
        validate_default=True,
        description="Model servers of the tfserving engine: [NAME=]HOST:PORT, separated by commas."
        " Required by that engine.",
    )
    models: str = Field(
        default="",
        validate_default=True,
        description="Models of the tfserving engine, separated by commas. Required by that engine.",
    )
    upstream_ca: Path | None = Field(
        default=None,
        description="Certificates (PEM) that upstreams are checked by; plain text if not given.",
    )
    upstream_cert: Path | None = Field(
        default=None,
        description="Certificate chain (PEM) shown to upstreams that want one; needs --upstream-ca "
        "and --upstream-key.",
    )
    upstream_key: Path | None = Field(
        default=None, description="Private key (PEM) of --upstream-cert."
    )
    upstream_token_file: Path | None = Field(
        default=None,
        description="File of the API key or token that upstreams are sent, if they are gateways.",
    )
    retry_budget: float = Field(
        default=0.1, ge=0, le=1, description="Retries allowed, as a part of all requests."
    )
    breaker_failures: int = Field(
        default=5, ge=1, description="Failures in a row after which an upstream is left alone."
    )
    breaker_seconds: float = Field(
        default=2.0, gt=0, description="How long it is left alone before one request tries it."
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; 0.0.0.0 for every network interface.",
    )
    port: int = Field(
        default=8501, ge=0, le=65535, description="Port to listen on; 0 for any free one."
    )
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of TensorFlow Serving's gRPC services, on the same address; "
        "0 for any free one; none if not given.",
    )
    admin_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of the admin API; needs --keys-file or --jwt-keys-file. None if not "
        "given.",
    )
    admin_host: str = Field(default="127.0.0.1", description="Address of the admin API.")
    keys_file: Path | None = Field(
        default=None,
        description="File of API keys, see `python -m server.keys --help`. With it every "
        "request to a model needs a key.",
    )
    jwt_keys_file: Path | None = Field(
        default=None,
        description="File of public keys (a JSON Web Key Set). With it requests may come with a "
        "token signed by one of them instead of a key; needs de-core[jwt], --jwt-issuer and "
        "--jwt-audience.",
    )
    jwt_issuer: str = Field(default="", description="Who issues the tokens (their `iss`).")
    jwt_audience: str = Field(default="", description="Whom the tokens are for (their `aud`).")
    tls_cert: Path | None = Field(
        default=None, description="Certificate chain (PEM); with --tls-key, HTTPS."
    )
    tls_key: Path | None = Field(default=None, description="Private key (PEM) of --tls-cert.")
    tls_client_ca: Path | None = Field(
        default=None, description="Certificates (PEM) that clients must be known by."
    )
    workers: int = Field(
        default=1, ge=1, le=256, description="Processes that share the port, each with its engine."
    )
    poll_seconds: float = Field(
        default=2.0, gt=0, description="How often to look for new versions."
    )
    threads: int = Field(
        default=4, ge=1, le=1024, description="Requests that run in the models at once."
    )
    max_waiting: int = Field(
        default=256, ge=0, description="Requests that may wait for a thread; more get a 429."
    )
    batch_rows: int = Field(
        default=0, ge=0, description="Rows of a micro-batch in the embedded engine; 0 for none."
    )
    batch_delay_ms: float = Field(
        default=2.0, ge=0, le=1000, description="How long a row may wait for its batch."
    )
    max_in_flight: int = Field(
        default=1024, ge=1, description="Requests answered at once; more get a 429."
    )
    client_in_flight: int = Field(
        default=512,
        ge=1,
        description="Requests of one key or address at once, from head to answer; more get a 429.",
    )
    rate_per_second: float = Field(
        default=5000.0,
        ge=0,
        description="Requests a second from one key or address, per process; 0 for no limit.",
    )
    model_in_flight: int = Field(
        default=512,
        ge=1,
        description="Requests to one model answered at once: the others keep some of the places.",
    )
    model_rate_per_second: float = Field(
        default=10_000.0,
        ge=0,
        description="Requests a second to one model, per process; 0 for no limit.",
    )
    request_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Longest time for an answer; a client may ask for less with "
        "X-Request-Timeout-Ms or grpc-timeout.",
    )
    head_seconds: float = Field(
        default=10.0, gt=0, description="Time a client has to send a request's head."
    )
    max_header_bytes: int = Field(
        default=32 << 10, ge=256, description="Largest head of a request."
    )
    max_body_bytes: int = Field(default=32 << 20, ge=1, description="Largest request body as sent.")
    max_decompressed_bytes: int = Field(
        default=64 << 20, ge=1, description="Largest request body after decompression."
    )
    body_seconds: float = Field(
        default=30.0, gt=0, description="Time a client has to send its request body."
    )
    max_elements: int = Field(default=4_000_000, ge=1, description="Values in one request.")
    max_rank: int = Field(default=8, ge=1, le=32, description="Dimensions of one tensor.")
    max_ids: int = Field(
        default=100_000, ge=1, description="Ids in one lookup, or examples in one request."
    )
    trusted_proxies: str = Field(
        default="",
        description="Addresses or networks of proxies, separated by commas, as in "
        "10.0.0.5,10.1.0.0/16. Their X-Forwarded-For and X-Forwarded-Proto are believed; "
        "nobody's if empty.",
    )
    ui: bool = Field(
        default=False,
        description="Serve the page at /ui. It shows ids that were looked up to every key of the "
        "scope lookup, and to everyone if no key is needed.",
    )
    cors_origin: str = Field(
        default="",
        description="Web origin that browsers may call from, * for all; none if empty.",
    )
    drain_seconds: float = Field(
        default=5.0,
        ge=0,
        description="After SIGTERM: how long /readyz says no while requests are still taken, "
        "so that load balancers look elsewhere first. Ctrl-C skips it.",
    )
    shutdown_seconds: float = Field(
        default=30.0, gt=0, description="How long requests may take to finish at the end."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least important message to log."
    )
    log_format: Literal["json", "text"] = Field(
        default="json", description="JSON lines, or plain text for people."
    )
    log_sample: float = Field(
        default=0.0, ge=0, le=1, description="Part of the answered requests that is logged."
    )
    tracing: bool = Field(
        default=False,
        description="Spans by OpenTelemetry, set up by its OTEL_ variables; needs de-core[otel].",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",") if name.strip()]
        for name in names:
            ip_network(name)
        return ",".join(names)

    @field_validator("model_dir", "upstreams", "models")
    @classmethod
    def _needed(cls, value: Any, info: ValidationInfo) -> Any:
        engine = info.data.get("engine", "embedded")
        needed = engine == ("embedded" if info.field_name == "model_dir" else "tfserving")
        if needed and not value:
            raise PydanticCustomError("missing", "Field required")
        return value


def load_settings(**flags: Any) -> Settings:
    """Reads the settings.

    Args:
        **flags: Settings that were given explicitly; they win over the environment.

    Raises:
        SettingsError: Something is missing, unknown or out of range.

    Example:
        >>> load_settings(model_dir="models", port="9000").port
        9000
    """
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
        raise SettingsError("\n".join(problems)) from None
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def settings_text(settings: Settings) -> str:
    """Returns the settings that hold, as a settings file. None of them is a secret."""
    import yaml

    values = settings.model_dump(mode="json", exclude_none=True, exclude={"settings_file"})
    return str(yaml.safe_dump(values, sort_keys=False))


def _from_file(path: str | Path | None) -> tuple[dict[str, Any], list[str]]:
    """Returns what the settings file says, and what is wrong with it."""
    if not path:
        return {}, []
    # PyYAML comes with uvicorn[standard]; JSON is YAML too.
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
