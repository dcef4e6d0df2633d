"""Writes the descriptors of TensorFlow Serving's messages for the gateway.

    python scripts/serving_protos.py

The descriptors come from the installed tensorflow-serving-api and TensorFlow. The gateway needs
neither: it reads server/protos/tensorflow_serving.binpb.
"""

from __future__ import annotations

import importlib
import pathlib

from google.protobuf import descriptor_pb2

FILE = pathlib.Path(__file__).resolve().parent.parent / "server/protos/tensorflow_serving.binpb"
MODULES = (
    "prediction_service_pb2",
    "model_service_pb2",
    "get_model_metadata_pb2",
    "prediction_log_pb2",
)


def collect() -> descriptor_pb2.FileDescriptorSet:
    """Returns the messages' files, each after the files that it imports."""
    files: dict[str, bytes] = {}

    def add(file: object) -> None:
        if file.name not in files:
            for each in file.dependencies:
                add(each)
            files[file.name] = file.serialized_pb

    for module in MODULES:
        add(importlib.import_module(f"tensorflow_serving.apis.{module}").DESCRIPTOR)
    return descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto.FromString(each) for each in files.values()]
    )


if __name__ == "__main__":
    FILE.write_bytes(collect().SerializeToString(deterministic=True))
    print(f"wrote {FILE}")
