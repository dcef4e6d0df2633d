"""The gateway gives the same answers as a recorded TensorFlow Serving 2.20.0.

`conformance/recorded_rest.jsonl` holds our requests and the real server's answers. `m` is the model
of `make_models.py` with the labels stable and canary. `ranking` stands for a trained model: the
test compares the shapes of its answers, not the numbers. `DIFFERS` lists the intended differences,
and `server/README.md` explains them.
"""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import server
from tests.server.support.asgi import Reply
from tests.server.support.gateway_process import GatewayProcess

FILE = Path(__file__).parents[1] / "conformance" / "recorded_rest.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]

# In TensorFlow's error messages, the name of the failed node begins with this text. Tests ignore
# node names, because their numbers change with every export.
_NODE = "\n\t [["

# For each request: our status, a text in our answer, and the row of the README that gives the
# reason.
DIFFERS: dict[str, tuple[int, str, str]] = {
    "ranking unknown encoding": (
        415,
        "must be gzip, deflate or identity. Received: br",
        "a `Content-Encoding` other than gzip and deflate",
    ),
    "ranking raw bad utf8": (
        400,
        "JSON Parse error: Invalid encoding in string. at offset: 26",
        "a string that is no UTF-8",
    ),
    "m score 2**64": (
        400,
        "JSON Value: 18446744073709551616 Type: Number",
        "an integer beyond 64 bits in an error",
    ),
    "m half deep 100": (
        400,
        "A tensor must have at most 8 dimensions. Received: rank=100",
        "a tensor of more than 8 dimensions",
    ),
    "ranking rank 2": (
        400,
        "Received: shape [1,1]. Incompatible shapes: [1,0,17] vs. [1,1,16]",
        "a tensor of another shape than the signature's",
    ),
    "m slow as rows": (
        400,
        "Input rounds must have shape []. Received: shape [1]. The second",
        "a tensor of another shape than the signature's",
    ),
    "m score leading zero": (
        400,
        "Missing a comma or a closing bracket after an element. at offset: 23",
        "JSON with a syntax error",
    ),
    "m half nan lower": (400, "Invalid value. at offset: 48", "JSON with a syntax error"),
    "root": (200, '{"status":"alive"}', "`GET /`, and paths outside of `/v1/`"),
}


@pytest.fixture(scope="module")
def beside(saved_models: Path, tmp_path_factory: Any):
    folder = tmp_path_factory.mktemp("beside")
    for version in ("1", "2"):
        shutil.copytree(saved_models / version, folder / "models" / "m" / version)
    shutil.copytree(saved_models / "ranking", folder / "models" / "ranking" / "1")
    flags = ("--version-policy", "all", "--labels", "m:stable=1,m:canary=2")
    with GatewayProcess(folder / "models", folder / "log", *flags) as process:
        for name, versions in (("m", 2), ("ranking", 1)):
            process.wait_for(
                f"/v1/models/{name}",
                lambda reply, many=versions: reply.body.count(b"AVAILABLE") == many,
            )
        yield process


def body_of(case: dict[str, Any]) -> bytes:
    if "rows" in case:
        rows = [{"user_id": f"u{i}", "item_id": f"i{i}"} for i in range(case["rows"])]
        return json.dumps({"instances": rows}).encode()
    if "body_b64" in case:
        return base64.b64decode(case["body_b64"])
    return case.get("body", "").encode()


def comparable(value: Any, *, numbers: bool) -> Any:
    """Returns a JSON value with floats rounded to float32, or with only the word float."""
    if isinstance(value, dict):
        # Names of nodes change with every export.
        kept = value if numbers or "tensor_shape" not in value else {**value, "name": ""}
        return {key: comparable(item, numbers=numbers) for key, item in kept.items()}
    if isinstance(value, list):
        return [comparable(item, numbers=numbers) for item in value]
    if isinstance(value, float):
        return repr(np.float32(value)) if numbers else "float"
    return type(value).__name__, value


def answer_of(case: dict[str, Any]) -> Any:
    answer = case["answer"]
    return {"predictions": answer["predictions"] * case["rows"]} if "rows" in case else answer


def error_text(reply: Reply | dict[str, Any]) -> str:
    error = reply["error"] if isinstance(reply, dict) else reply.error
    return error.split(_NODE)[0]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_answers_as_the_real_server(beside, case):
    body = body_of(case)
    reply = beside.ask(case["method"], case["path"], body or None, case.get("headers"))
    if case["id"] in DIFFERS:
        status, words, _ = DIFFERS[case["id"]]
        assert reply.status == status
        assert words in reply.body.decode()
        assert (status, words) != (case["status"], case.get("answer", {}).get("error"))
        return
    assert reply.status == case["status"], reply.body
    if "answer" not in case:
        assert reply.status >= 400
    elif "error" in case["answer"]:
        assert error_text(reply) == error_text(case["answer"])
    else:
        numbers = "/ranking" not in case["path"]
        want = comparable(answer_of(case), numbers=numbers)
        assert comparable(reply.json(), numbers=numbers) == want


def test_every_difference_is_a_recorded_request_and_a_row_of_the_readme():
    assert DIFFERS.keys() <= {case["id"] for case in CASES}
    readme = Path(server.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert f"{len(CASES)} requests that a real TensorFlow Serving" in readme
    for _, _, row in DIFFERS.values():
        assert f"\n| {row} |" in readme
