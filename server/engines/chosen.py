"""Creates the parts of a gateway that the settings choose: the engine and its routes."""

from collections.abc import Iterable
from pathlib import Path

from ..observability.metrics import Metrics
from ..settings import Settings
from .base import Engine
from .embedded.engine import EmbeddedEngine
from .embedded.model_folder import folder_of, found_models
from .routed import RoutedEngine, Routes, parse_labels
from .upstream.engine import RunWork, TfServingEngine, model_names


def make_engine(
    settings: Settings,
    metrics: Metrics,
    run_codec: RunWork,
    promised: Iterable[str] | None = None,
    routes_file: Path | None = None,
) -> RoutedEngine:
    """Creates the engine and its routes.

    `run_codec` runs the decoders and encoders of large messages; see `Codec.run`. The engine is
    ready once all `promised` models serve. By default these are the models that exist at the start.
    `routes_file` keeps the routes if the settings name no file.

    Raises:
        StartError: The list of model servers is wrong, or a file cannot be used.
    """
    engine: Engine
    if settings.engine == "tfserving":
        engine = TfServingEngine(settings, run_codec, metrics)
    else:
        engine = EmbeddedEngine(settings, metrics, promised)
    return RoutedEngine(engine, routes_of(settings), settings.routes_file or routes_file)


def routes_of(settings: Settings) -> Routes:
    """Returns the labels at the start; raises `StartError`."""
    if settings.engine == "tfserving":
        models = model_names(settings)
    else:
        models = list(found_models(settings)) or [folder_of(settings).name]
    return Routes(labels=parse_labels(settings.labels, models[0] if len(models) == 1 else None))
