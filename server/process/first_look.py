"""What a gateway finds when it starts: which models there are."""

from collections.abc import Mapping

from server.engines.embedded.model_folder import ModelFolder, Versions
from server.settings import Settings


def folder_of(settings: Settings) -> ModelFolder:
    """Returns the model folder of a gateway with models of its own."""
    assert settings.model_dir is not None
    return ModelFolder(settings.model_dir, settings.model_name)


def found_models(settings: Settings) -> Mapping[str, Versions]:
    """Returns the models in the model folder; none for a gateway without models of its own."""
    if settings.engine != "embedded":
        return {}
    try:
        return folder_of(settings).scan()
    except OSError:
        return {}
