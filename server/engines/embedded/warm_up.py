"""Runs a version before it takes traffic, so that its first clients do not wait.

The requests are the ones that TensorFlow Serving would run: a TFRecord file of `PredictionLog`
messages in the version's folder. Without this file each signature runs once on one row of zeros.
Errors are logged and have no other effect.
"""

import contextlib
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ServingError
from ...protos.modules import load_protos
from ...protos.tensors import to_array
from ...tensors import CLASSIFY_METHOD, REGRESS_METHOD, Kind, SignatureSpec, TensorSpec
from .leased_version import LoadedModel

_LOG = logging.getLogger("server.models")
_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
# TensorFlow Serving's own limit.
_MAX_RECORDS = 1000
_MAX_ZEROS = 1_000_000
# The deadline of most requests, in seconds.
_SECONDS = 60.0


def warm_up(model: LoadedModel, path: Path) -> int:
    """Warms up a model that was just loaded; returns the number of answered requests.

    Args:
        model: The loaded model.
        path: The model's folder.
    """
    answered = 0
    file = path / _FILE
    runs = _logged(model, file) if file.is_file() else _zeros(model)
    while True:
        try:
            if next(runs, None) is None:
                break
            answered += 1
        except Exception as error:  # a model may raise anything, even on zeros
            _LOG.debug("a warm-up request of %s failed: %s", path.name, error)
            if file.is_file():
                _LOG.warning("a warm-up request of version %s failed: %s", path.name, error)
                break
    _LOG.info("version %s was warmed up by %d requests", path.name, answered)
    return answered


def _logged(model: LoadedModel, file: Path) -> Iterator[bool]:
    logs = load_protos().log
    for record in read_records(file)[:_MAX_RECORDS]:
        log = logs.PredictionLog.FromString(record)
        if log.WhichOneof("log_type") != "predict_log":
            continue
        request = log.predict_log.request
        name = request.model_spec.signature_name or "serving_default"
        inputs = {key: to_array(proto) for key, proto in request.inputs.items()}
        _run(model, name, inputs)
        yield True


def _run(model: LoadedModel, signature: str, inputs: dict[str, Any]) -> None:
    # Run the signature as requests do: a steady one without a deadline, others with a deadline.
    # TensorFlow prepares the two kinds of runs separately.
    model.run(signature, inputs, None if signature in model.steady else _SECONDS)


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


def _zeros(model: LoadedModel) -> Iterator[bool]:
    for signature in model.signatures.values():
        if signature.method_name not in (CLASSIFY_METHOD, REGRESS_METHOD):
            with contextlib.suppress(ServingError, ValueError):
                _run(model, signature.name, _inputs(signature))
                yield True


def _inputs(signature: SignatureSpec) -> dict[str, Any]:
    return {name: _zero(spec) for name, spec in signature.inputs.items()}


def _zero(spec: TensorSpec) -> Any:
    shape = tuple(1 if size is None else size for size in spec.shape or ())
    if np.prod(shape, dtype=float) > _MAX_ZEROS:
        raise ValueError(f"input {spec.name} is too large to be made up")
    if spec.dtype.kind is Kind.STRING:
        return np.full(shape, b"", object)
    return np.zeros(shape, spec.dtype.numpy)
