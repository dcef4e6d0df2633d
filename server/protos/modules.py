"""TensorFlow Serving's messages and services, and the Open Inference Protocol's messages.

`tensorflow_serving.binpb` holds the descriptors of TensorFlow Serving; `scripts/serving_protos.py`
writes it. `open_inference.binpb` holds the Open Inference Protocol's; `open_inference.proto` says
how to compile it.
"""

import functools
import types
from pathlib import Path
from typing import Any

from ..errors import internal, invalid

DESCRIPTORS = Path(__file__).with_name("tensorflow_serving.binpb")
INFERENCE_DESCRIPTORS = Path(__file__).with_name("open_inference.binpb")
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"


@functools.cache
def load_protos() -> types.SimpleNamespace:
    """Creates the message classes; takes milliseconds.

    protobuf's default pool cannot be used, because TensorFlow adds its own release of the same
    files there.

    Returns:
        All message classes by their short names, and the `pool` of descriptors. If both APIs have
        a message of one name, the name means the Open Inference Protocol's.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool, names = descriptor_pool.DescriptorPool(), []
    for path in (DESCRIPTORS, INFERENCE_DESCRIPTORS):
        for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
            pool.Add(file)
            names.append(file.name)
    classes = message_factory.GetMessageClassesForFiles(names, pool).values()
    return types.SimpleNamespace(pool=pool, **{each.DESCRIPTOR.name: each for each in classes})


def parse(kind: Any, body: bytes) -> Any:
    """Parses a message of the given type.

    Raises:
        ServingError: The bytes are no such message: INVALID_ARGUMENT for a request, INTERNAL for a
            model server's answer.
    """
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(body)
    except DecodeError:
        name = kind.DESCRIPTOR.name
    if name.endswith("Response"):
        raise internal(f"A model server must answer with a {name}")
    raise invalid(f"The request must be a {name}")
