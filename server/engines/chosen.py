"""Creates the parts of a gateway that the settings choose: the engine and its routes."""

import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import StartError
from ..observability.metrics import Metrics
from ..settings import Settings
from .base import Engine
from .embedded.engine import EmbeddedEngine
from .embedded.model_folder import found_models
from .routed import Routes, parse_labels
from .upstream.endpoint import ChannelOptions, parse_upstreams
from .upstream.engine import RunWork, TfServingEngine, TfServingOptions


def make_engine(
    settings: Settings,
    metrics: Metrics,
    run_codec: RunWork,
    promised: Iterable[str] | None = None,
) -> Engine:
    """Creates the engine.

    Args:
        settings: The settings.
        metrics: Counts batches, waiting requests and calls.
        run_codec: Runs the decoders and encoders of large messages; see `Codec.run`.
        promised: The models that must serve before the engine is ready. By default the models that
            exist at the start.

    Raises:
        StartError: The list of model servers is wrong, or the file with the token for them cannot
            be used.
    """
    if settings.engine == "tfserving":
        return TfServingEngine(tfserving_options(settings), run_codec, metrics)
    return EmbeddedEngine(settings, metrics, promised)


def routes_of(settings: Settings) -> Routes:
    """Returns the labels at the start; raises `StartError`."""
    return Routes(labels=parse_labels(settings.labels, _only_model(settings)))


def _only_model(settings: Settings) -> str | None:
    """Returns the model's name if the settings name exactly one."""
    if settings.engine == "embedded" and settings.model_name is not None:
        return settings.model_name
    upstream = settings.engine == "tfserving"
    models = _names(settings.models) if upstream else list(found_models(settings))
    return models[0] if len(models) == 1 else None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def tfserving_options(settings: Settings) -> TfServingOptions:
    """Returns the options of an engine in front of model servers; raises as `make_engine`."""
    certificate: tuple[Path, Path] | None = None
    if settings.upstream_cert is not None and settings.upstream_key is not None:
        certificate = (settings.upstream_cert, settings.upstream_key)
    file = settings.upstream_token_file
    token = file.read_text("utf-8", "replace").strip() if file is not None else ""
    if file is not None and not re.fullmatch(r"[!-~]+", token):
        raise StartError(
            "The file must hold one key or token, and nothing else. "
            f"Received: --upstream-token-file={file}"
        )
    return TfServingOptions(
        upstreams=parse_upstreams(settings.upstreams),
        models=_names(settings.models),
        poll_seconds=settings.poll_seconds,
        channel=ChannelOptions(
            max_message_bytes=settings.max_decompressed_bytes,
            ca=settings.upstream_ca,
            certificate=certificate,
            token=token,
        ),
    )
