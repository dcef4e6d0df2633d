"""Warm-up requests, which a server runs before a version takes traffic.

TensorFlow Serving reads the file `assets.extra/tf_serving_warmup_requests`. It holds TFRecords of
`PredictionLog` messages. We encode the few fields that matter ourselves: the Python package with
these messages is `tensorflow-serving-api`, which trainers do not need.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import Request
from de_core.exports.version import EXTRA

FILE = f"{EXTRA}/tf_serving_warmup_requests"
#: TensorFlow Serving refuses a file with more requests.
MOST_REQUESTS = 1000
# Field numbers of PredictionLog, PredictLog, PredictRequest, ModelSpec and a map's entries.
_PREDICT_LOG, _REQUEST = 6, 1
_MODEL_SPEC, _INPUTS, _NAME, _SIGNATURE = 1, 2, 1, 3
_KEY, _VALUE = 1, 2


def requests(
    sample: Request | Sequence[Request], function: tf.types.experimental.ConcreteFunction
) -> list[dict[str, tf.Tensor]]:
    """Checks a sample and returns it as a list of requests to a signature.

    Args:
        sample: Inputs by name, or a list of such requests.
        function: The signature, a concrete function.

    Raises:
        TypeError: A request is not a dict.
        ValueError: A request's names differ from the signature's inputs, or the number of requests
            is not in [1, `MOST_REQUESTS`].
    """
    flat = tf.nest.flatten(function.structured_input_signature)
    # Ignore Python values, such as argument defaults: they are not inputs.
    specs = {spec.name: spec for spec in flat if isinstance(spec, tf.TensorSpec)}
    found = [sample] if isinstance(sample, Mapping) else list(sample)
    if not 0 < len(found) <= MOST_REQUESTS:
        raise ValueError(f"`sample` must be 1 to {MOST_REQUESTS} requests. Received: {len(found)}.")
    made = []
    for request in found:
        if not isinstance(request, Mapping):
            raise TypeError(
                f"A request must be a dict of inputs by name. {received(request=request)}"
            )
        if set(request) != set(specs):
            raise ValueError(
                f"A request must have the signature's inputs, {sorted(specs)}. "
                f"Received: {sorted(request)}."
            )
        made.append(
            {name: tf.convert_to_tensor(request[name], specs[name].dtype) for name in specs}
        )
    return made


def write(
    folder: pathlib.Path, model: str, signature: str, made: Iterable[Mapping[str, tf.Tensor]]
) -> None:
    """Writes requests to the file where a server looks for them."""
    spec = _bytes(_NAME, model.encode()) + _bytes(_SIGNATURE, signature.encode())
    (folder / EXTRA).mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / FILE)) as file:
        for inputs in made:
            request = _bytes(_MODEL_SPEC, spec)
            for name, tensor in inputs.items():
                proto = tf.make_tensor_proto(tensor.numpy()).SerializeToString()
                request += _bytes(_INPUTS, _bytes(_KEY, name.encode()) + _bytes(_VALUE, proto))
            file.write(_bytes(_PREDICT_LOG, _bytes(_REQUEST, request)))


def _bytes(field: int, content: bytes) -> bytes:
    """Encodes a bytes field: its tag, its length as a varint, its content."""
    length, encoded = len(content), bytes([field << 3 | 2])
    while length >= 128:
        encoded += bytes([length & 127 | 128])
        length >>= 7
    return encoded + bytes([length]) + content
