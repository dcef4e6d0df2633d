"""TensorFlow Serving's messages and stubs, imported when they are needed and not before."""

import dataclasses
import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_APIS = "tensorflow_serving.apis"


class MissingProtosError(Exception):
    """The messages are not installed; says what to install."""


@dataclasses.dataclass(frozen=True)
class Protos:
    """The modules of messages and stubs."""

    predict: Any
    classification: Any
    regression: Any
    inference: Any
    inputs: Any
    metadata: Any
    status: Any
    management: Any
    model: Any
    meta_graph: Any
    prediction_service: Any
    model_service: Any


@functools.cache
def load_protos() -> Protos:
    """Imports the messages.

    Raises:
        MissingProtosError: `tensorflow-serving-api` or `grpcio` is not installed.
    """
    try:
        with _without_running_tensorflow():
            return Protos(
                predict=_api("predict_pb2"),
                classification=_api("classification_pb2"),
                regression=_api("regression_pb2"),
                inference=_api("inference_pb2"),
                inputs=_api("input_pb2"),
                metadata=_api("get_model_metadata_pb2"),
                status=_api("get_model_status_pb2"),
                management=_api("model_management_pb2"),
                model=_api("model_pb2"),
                meta_graph=importlib.import_module("tensorflow.core.protobuf.meta_graph_pb2"),
                prediction_service=_api("prediction_service_pb2_grpc"),
                model_service=_api("model_service_pb2_grpc"),
            )
    except ImportError as error:
        raise MissingProtosError(
            "gRPC needs TensorFlow Serving's messages: pip install 'de-core[server]'. "
            f"Received: {' '.join(str(error).split())[:300]}"
        ) from None


def _api(name: str) -> Any:
    return importlib.import_module(f"{_APIS}.{name}")


@contextmanager
def _without_running_tensorflow() -> Iterator[None]:
    """Lets `tensorflow.core` be imported without `tensorflow/__init__.py`.

    The messages lie in TensorFlow's package and need nothing of it; running it costs seconds
    and hundreds of megabytes, in each process that only passes requests on. A process that
    has imported TensorFlow already is left as it is.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        yield
        return
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = package
    try:
        yield
    finally:
        del sys.modules["tensorflow"]
