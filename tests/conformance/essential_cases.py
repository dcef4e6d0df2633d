"""The most important rules of TensorFlow Serving's REST API, restated as data.

The complete corpus is used if it lies beside the checkout. These few cases run everywhere. The keys
are explained in `test_rest_cases.py`.
"""

from __future__ import annotations

from typing import Any

NAN, INF, NEGATIVE_INF = "NaN", "Infinity", "-Infinity"


def _tensor(dtype: str, shape: list[int], values: list[Any]) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "values": values}


def _predict(name: str, body: str, layout: str, **tensors: dict[str, Any]) -> dict[str, Any]:
    inputs = {key: tensor["dtype"] for key, tensor in tensors.items()}
    return {
        "id": name, "kind": "predict_ok", "inputs": inputs, "body": body,
        "tensors": tensors, "format": layout,
    }  # fmt: skip


def _path(name: str, method: str, path: str, **parts: Any) -> dict[str, Any]:
    return {"id": name, "kind": "path_ok", "method": method, "path": path, **parts}


ESSENTIAL_CASES: list[dict[str, Any]] = [
    _predict(
        "rows of a list", '{"instances": [[4, 5], [6, 7]]}', "row",
        x=_tensor("DT_INT32", [2, 2], [4, 5, 6, 7]),
    ),
    _predict(
        "floats of integers and decimals", '{"instances": [3, 0.25, 1e2]}', "row",
        x=_tensor("DT_FLOAT", [3], [3, 0.25, 100]),
    ),
    _predict(
        "float overflow is infinite", '{"instances": [1e300, -1e300, 1e-300]}', "row",
        x=_tensor("DT_FLOAT", [3], [INF, NEGATIVE_INF, 0]),
    ),
    _predict(
        "bare words for what JSON lacks", '{"inputs": [NaN, Infinity, -Infinity]}', "columnar",
        x=_tensor("DT_DOUBLE", [3], [NAN, INF, NEGATIVE_INF]),
    ),
    _predict(
        "int64 is exact", '{"instances": [9223372036854775807, -9223372036854775808]}', "row",
        x=_tensor("DT_INT64", [2], [2**63 - 1, -(2**63)]),
    ),
    _predict(
        "uint64 is exact", '{"inputs": 18446744073709551615}', "columnar",
        x=_tensor("DT_UINT64", [], [2**64 - 1]),
    ),
    _predict(
        "booleans", '{"instances": [[true], [false]]}', "row",
        x=_tensor("DT_BOOL", [2, 1], [True, False]),
    ),
    _predict(
        "base64 alone is a value", '{"instances": [{"b64": "dGY="}, "plain"]}', "row",
        x=_tensor("DT_STRING", [2], ["tf", "plain"]),
    ),
    _predict(
        "named rows",
        '{"instances": [{"n": 1, "s": ["a"]}, {"s": [{"b64": "Yg=="}], "n": 2}]}', "row",
        n=_tensor("DT_INT64", [2], [1, 2]),
        s=_tensor("DT_STRING", [2, 1], ["a", "b"]),
    ),
    _predict(
        "named columns of different batch sizes",
        '{"inputs": {"n": [1, 2, 3], "s": {"b64": "Yg=="}, "ignored": [[]]}}', "columnar",
        n=_tensor("DT_INT64", [3], [1, 2, 3]),
        s=_tensor("DT_STRING", [], ["b"]),
    ),
    _predict(
        "an empty column", '{"inputs": []}', "columnar", x=_tensor("DT_INT32", [0], []),
    ),
    _predict(
        "unknown top-level keys are ignored", '{"extra": {"a": [1]}, "instances": [1]}', "row",
        x=_tensor("DT_INT32", [1], [1]),
    ),
    _predict(
        "bytes after the value are ignored", '{"instances": [1]} tail', "row",
        x=_tensor("DT_INT32", [1], [1]),
    ),
    {
        "id": "several outputs", "kind": "response_ok",
        "tensors": {
            "n": _tensor("DT_INT32", [2], [1, 2]),
            "s_bytes": _tensor("DT_STRING", [2], ["tf", "x"]),
            "f": _tensor("DT_FLOAT", [2, 1], [0.5, 3]),
        },
        "row": {
            "predictions": [
                {"n": 1, "s_bytes": {"b64": "dGY="}, "f": [0.5]},
                {"n": 2, "s_bytes": {"b64": "eA=="}, "f": [3.0]},
            ]
        },
        "columnar": {
            "outputs": {
                "n": [1, 2], "s_bytes": [{"b64": "dGY="}, {"b64": "eA=="}], "f": [[0.5], [3.0]],
            }
        },
    },
    {
        "id": "non-finite output", "kind": "response_ok",
        "tensors": {"f": _tensor("DT_FLOAT", [3], [NAN, NEGATIVE_INF, 3])},
        "row_text": '{"predictions": [NaN, -Infinity, 3.0]}',
    },
    {
        "id": "empty batch", "kind": "response_ok",
        "tensors": {"n": _tensor("DT_INT32", [0, 2], []), "f": _tensor("DT_FLOAT", [0], [])},
        "row": {"predictions": []},
    },
    {
        "id": "examples", "kind": "classify_regress_ok", "signature": "s",
        "body": '{"signature_name": "s", "context": {"q": ["a"]}, "examples": '
        '[{"f": [1.0, NaN], "n": 5, "b": "x"}, {"n": [1, true, false]}]}',
        "context": {"q": {"bytes": ["a"]}},
        "examples": [
            {"f": {"float": [1.0, NAN]}, "n": {"int64": [5]}, "b": {"bytes": ["x"]}},
            {"n": {"int64": [1, 1, 0]}},
        ],
    },
    {
        "id": "classifications", "kind": "classify_result",
        "classifications": [[["a", 0.2], ["b", 0.7]]],
        "json": {"results": [[["a", 0.2], ["b", 0.7]]]},
    },
    {
        "id": "regressions", "kind": "regress_result", "values": [0.2, INF],
        "json_text": '{"results": [0.2, Infinity]}',
    },
    _path("a reserved character", "GET", "/v1/models/a%2Fb", model="a/b"),
    _path("a version", "POST", "/v1/models/m/versions/9:predict", model="m", version=9,
          verb="predict"),
    _path("a label", "GET", "/v1/models/m/labels/l%3A/metadata", model="m", label="l:",
          subresource="metadata"),
    _path("the verb's case counts", "POST", "/v1/models/m:PREDICT", status=400),
]  # fmt: skip
