"""Runs a version before it takes traffic, so that its first clients do not wait.

The requests are the ones that TensorFlow Serving would run: a TFRecord file of `PredictionLog`
messages in the version's folder. Without this file each signature runs once on one row of zeros.
Errors are logged and have no other effect.
"""

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...protos.modules import load_protos
from ...protos.tensors import to_array
from ...tensors import CLASSIFY_METHOD, DEFAULT_SIGNATURE, REGRESS_METHOD, Kind
from .saved_model import SavedModel

_LOG = logging.getLogger("server.models")
_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
# TensorFlow Serving's own limit.
_MAX_RECORDS = 1000
_MAX_ZEROS = 1_000_000
# The deadline of most requests, in seconds.
_SECONDS = 60.0


def warm_up(model: SavedModel, path: Path) -> int:
    """Warms up a model that was just loaded; returns the number of answered requests."""
    answered = 0
    file = path / _FILE
    if file.is_file():
        try:
            for signature, inputs in _logged(file):
                model.run(signature, inputs, _SECONDS)
                answered += 1
        except Exception as error:  # a model may raise anything
            _LOG.warning("a warm-up request of version %s failed: %s", path.name, error)
    else:
        for signature, inputs in _zeros(model):
            try:
                model.run(signature, inputs, _SECONDS)
                answered += 1
            except Exception as error:
                _LOG.debug("a warm-up request of %s failed: %s", path.name, error)
    _LOG.info("version %s was warmed up by %d requests", path.name, answered)
    return answered


def _logged(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in read_records(file)[:_MAX_RECORDS]:
        log = load_protos().PredictionLog.FromString(record)
        if log.WhichOneof("log_type") == "predict_log":
            request = log.predict_log.request
            inputs = {key: to_array(proto) for key, proto in request.inputs.items()}
            yield request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs


def read_records(file: Path) -> list[bytes]:
    """Returns the records of a TFRecord file, up to the first damaged one."""
    content = file.read_bytes()
    records = []
    at = 0
    while at + 16 <= len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        if at + 16 + size > len(content):
            break
        records.append(content[at + 12 : at + 12 + size])
        at += 16 + size
    return records


def _zeros(model: SavedModel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each signature that takes no examples, with inputs of one row unless too large."""
    for signature in model.signatures.values():
        if signature.method_name not in (CLASSIFY_METHOD, REGRESS_METHOD):
            shapes = {
                name: tuple(1 if size is None else size for size in spec.shape or ())
                for name, spec in signature.inputs.items()
            }
            if all(np.prod(shape, dtype=float) <= _MAX_ZEROS for shape in shapes.values()):
                yield (
                    signature.name,
                    {
                        name: np.full(shape, b"", object)
                        if signature.inputs[name].dtype.kind is Kind.STRING
                        else np.zeros(shape, signature.inputs[name].dtype.numpy)
                        for name, shape in shapes.items()
                    },
                )
