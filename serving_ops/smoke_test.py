#!/usr/bin/env python3
"""Looks up embedding rows on a running model server and compares them with the export.

    python serving_ops/smoke_test.py HOST --model ranking --export exported/ranking/1

It waits until the model is available, reads its metadata, looks up ids over gRPC and REST, and
compares both with the SavedModel loaded here. It works with TensorFlow Serving with the ops, and
with the gateway's gRPC port. It exits with 0 if all rows agree. It needs de_core and
tensorflow-serving-api.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

TOLERANCE = 1e-6
POLL_SECONDS = 0.5
LOOKUP = "de_lookup/"


class SmokeTestError(Exception):
    """The server does not run, or its answer differs from the export."""


def over_rest(base: str, path: str, body: Any = None) -> Any:
    """Returns the JSON answer of a GET if `body` is None, else of a POST.

    Raises:
        SmokeTestError: The server answered with an error.
    """
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(base + path, data, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise SmokeTestError(f"{path} answered {error.code}: {error.read().decode()}") from None


def wait_until_available(base: str, model: str, seconds: float) -> list[int]:
    """Waits for an available version; returns all available versions.

    Raises:
        SmokeTestError: No version is available within `seconds`.
    """
    deadline = time.monotonic() + seconds
    said: Any = "nothing"
    while time.monotonic() < deadline:
        try:
            said = over_rest(base, f"/v1/models/{urllib.parse.quote(model, safe='')}")
            states = said["model_version_status"]
            available = [int(each["version"]) for each in states if each["state"] == "AVAILABLE"]
            if available:
                return available
        except (SmokeTestError, OSError) as error:
            said = error
        time.sleep(POLL_SECONDS)
    raise SmokeTestError(
        f"model {model!r} must become available at {base} within {seconds:g} s. Received: {said}"
    )


def over_grpc(address: str, model: str, signature: str, ids: Any, timeout: float) -> Any:
    """Returns the rows of the tensor `ids` from `PredictionService.Predict`, [n, dim].

    `timeout` is in seconds.
    """
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    request.inputs["ids"].CopyFrom(tf.make_tensor_proto(ids))
    with grpc.insecure_channel(address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request, timeout=timeout)
    return tf.make_ndarray(answer.outputs["embeddings"])


def exported_lookups(path: str) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Returns the type of the ids, and a function from ids to rows, for each lookup signature."""
    import tensorflow as tf

    import de_core  # noqa: F401  loads the op library

    loaded = tf.saved_model.load(path)
    functions = {name: f for name, f in loaded.signatures.items() if name.startswith(LOOKUP)}

    def asking(function: Any) -> tuple[Any, Callable[[Any], Any]]:
        def ask(ids: Any) -> Any:
            kept = loaded  # TensorFlow destroys the tables with the last reference to `loaded`
            assert kept is not None
            return function(ids=ids)["embeddings"].numpy()

        return function.structured_input_signature[1]["ids"].dtype, ask

    return {name: asking(function) for name, function in functions.items()}


def rows_of_json(rows: Any, wanted: Any) -> Any:
    """Returns the rows of a JSON answer as an array; strings as bytes, as in the array `wanted`."""
    import numpy as np

    if wanted.dtype != object:
        return np.asarray(rows)

    def raw(text: Any) -> bytes:
        return base64.b64decode(text["b64"]) if isinstance(text, dict) else text.encode()

    return np.vectorize(raw, otypes=[object])(np.asarray(rows, object))


def largest_difference(rows: Any, wanted: Any) -> float:
    """Returns the largest difference of two arrays; infinity if shapes or other types differ."""
    import numpy as np

    if rows.shape != wanted.shape:
        return float("inf")
    if wanted.dtype.kind in "biuO":
        return 0.0 if np.array_equal(rows, wanted) else float("inf")
    same = (rows == wanted) | (np.isnan(rows) & np.isnan(wanted))
    return float(np.max(np.where(same, 0, np.abs(rows - wanted))))


def compare(host: str, args: argparse.Namespace) -> int:
    """Runs every comparison and returns their number.

    Raises:
        SmokeTestError: An answer differs, or there is nothing to compare.
    """
    import tensorflow as tf

    base = f"http://{host}:{args.rest_port}"
    path = f"/v1/models/{urllib.parse.quote(args.model, safe='')}"
    versions = wait_until_available(base, args.model, args.wait)
    print(f"{args.model}: available versions {versions}")
    metadata = over_rest(base, f"{path}/metadata")
    served = metadata["metadata"]["signature_def"]["signature_def"]
    print(f"signatures: {', '.join(sorted(served))}")
    compared = 0
    for signature, (dtype, rows_of) in exported_lookups(args.export).items():
        if signature not in served:
            raise SmokeTestError(f"{signature!r} is in the export, not in the server's metadata")
        if dtype == tf.string:
            ids = [str(each) for each in args.ids]
        else:
            ids = [each for each in args.ids if dtype.min <= each <= dtype.max]
        if not ids:
            raise SmokeTestError(
                f"{signature!r} needs ids of type {dtype.name}. Received: --ids {args.ids}"
            )
        tensor = tf.constant(ids, dtype)
        wanted = rows_of(tensor)
        predict = {"signature_name": signature, "inputs": {"ids": ids}}
        answer = over_rest(base, f"{path}:predict", predict)["outputs"]
        grpc = f"{host}:{args.grpc_port}"
        answers = {
            "REST": rows_of_json(answer["embeddings"], wanted),
            "gRPC": over_grpc(grpc, args.model, signature, tensor.numpy(), args.wait),
        }
        for way, rows in answers.items():
            difference = largest_difference(rows, wanted)
            if not difference <= TOLERANCE:  # NaN too
                raise SmokeTestError(
                    f"{way} must answer the export's rows of {signature!r} for ids {ids}. "
                    f"Received: shape {rows.shape} of {wanted.shape}, difference {difference}"
                )
            print(f"{signature}: {way} agrees for {len(ids)} ids, difference {difference:.1e}")
            compared += 1
    if compared == 0:
        raise SmokeTestError(f"{args.export} must have a signature that begins with {LOOKUP}")
    return compared


def main() -> None:
    """Compares and prints the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host", help="host name or address of the model server")
    parser.add_argument("--model", required=True, help="the model's name on the server")
    parser.add_argument("--export", required=True, help="the exported version directory")
    parser.add_argument("--grpc-port", type=int, default=8500)
    parser.add_argument("--rest-port", type=int, default=8501)
    parser.add_argument("--wait", type=float, default=120, help="seconds to wait for the model")
    parser.add_argument(
        "--ids", type=int, nargs="+", default=[0, 1, 7, 2**40, -1], help="ids to look up"
    )
    args = parser.parse_args()
    try:
        print(f"passed: {compare(args.host, args)} comparisons")
    except SmokeTestError as error:
        sys.exit(f"smoke_test: {error}")


if __name__ == "__main__":
    main()
