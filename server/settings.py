"""Everything that can be set, declared once: flags, environment and `--help` come from here.

A flag wins over the environment, the environment over the default. `--poll-seconds 5` and
`DE_GATEWAY_POLL_SECONDS=5` are the same setting.
"""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "DE_GATEWAY_"


class SettingsError(Exception):
    """Settings that cannot be used; the message lists every problem, one a line."""


class Settings(BaseSettings):
    """The gateway's settings."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, protected_namespaces=()
    )

    model_dir: Path = Field(
        description="Folder of the models: either numbered version folders of one model "
        "(DIR/1/saved_model.pb), or several folders of that kind, each a model of its name "
        "(DIR/ranker/1/saved_model.pb). Versions that appear later are picked up."
    )
    model_name: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the model, if the folder holds one. "
        "The name of the folder if not given.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; 0.0.0.0 for every network interface.",
    )
    port: int = Field(
        default=8501, ge=0, le=65535, description="Port to listen on; 0 for any free one."
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
    max_body_bytes: int = Field(default=32 << 20, ge=1, description="Largest request body as sent.")
    max_decompressed_bytes: int = Field(
        default=64 << 20, ge=1, description="Largest request body after decompression."
    )
    body_seconds: float = Field(
        default=30.0, gt=0, description="Time a client has to send its request body."
    )
    max_elements: int = Field(default=4_000_000, ge=1, description="Values in one request.")
    max_rank: int = Field(default=8, ge=1, le=32, description="Dimensions of one tensor.")
    max_ids: int = Field(default=100_000, ge=1, description="Ids in one lookup.")
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
    problems = [
        f"{name} is not a setting of the gateway: see --help for those that are."
        for name in sorted(os.environ)
        if name.startswith(ENV_PREFIX)
        and name.removeprefix(ENV_PREFIX).lower() not in Settings.model_fields
    ]
    try:
        settings = Settings(**flags)
    except ValidationError as error:
        problems += [_problem(entry["loc"], entry["msg"], entry) for entry in error.errors()]
        raise SettingsError("\n".join(problems)) from None
    if problems:
        raise SettingsError("\n".join(problems))
    return settings


def flag_of(name: str) -> str:
    """Returns the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def _problem(location: tuple[int | str, ...], message: str, entry: Any) -> str:
    name = str(location[0]) if location else "settings"
    where = f"{flag_of(name)} (or {ENV_PREFIX}{name.upper()})"
    if entry["type"] == "missing":
        return f"{where} must be given: {Settings.model_fields[name].description}"
    return f"{where}: {message}. Received: {entry['input']}"
