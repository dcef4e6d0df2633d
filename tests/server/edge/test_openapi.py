"""The OpenAPI document matches the gateway's answers."""

import json
import re

import pytest

from server.errors import ServingError
from server.limits import Limits
from server.routers.openapi import model_openapi
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire.lookup import decode_lookup
from server.wire.oip import decode_infer
from tests.server.support.asgi import ask, make_app

DOCUMENT = make_app(ui="true").openapi()


OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def objects(value):
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from objects(item)


def test_every_reference_has_a_schema_and_every_schema_a_reference():
    used = {each["$ref"] for each in objects(DOCUMENT) if "$ref" in each}
    assert used == {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}


def test_every_path_names_its_parameters():
    for path, _, operation in OPERATIONS:
        parameters = [p for p in operation.get("parameters", []) if p["in"] == "path"]
        assert all("example" in parameter for parameter in parameters)
        assert [parameter["name"] for parameter in parameters] == re.findall(r"\{(\w+)\}", path)


def test_every_operation_has_an_id_and_every_array_an_item_type():
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))
    assert all(name.isidentifier() for name in ids)
    assert all("items" in each for each in objects(DOCUMENT) if each.get("type") == "array")


@pytest.mark.parametrize(
    ("body", "decode"),
    [
        ("LookupBody", decode_lookup),
        ("InferBody", lambda body, limits: decode_infer(body, None, limits)),
    ],
)
def test_a_body_without_what_the_document_requires_is_refused(body, decode):
    schema = DOCUMENT["components"]["schemas"][body]
    assert schema["required"]
    with pytest.raises(ServingError, match=schema["required"][0]):
        decode(b"{}", Limits())


def test_the_document_has_no_status_422():
    assert all("422" not in operation["responses"] for _, _, operation in OPERATIONS)


def test_the_page_counts_no_requests_of_a_client():
    assert "429" not in DOCUMENT["paths"]["/ui"]["get"]["responses"]


def test_examples_of_lookups_are_lookups():
    lookups = [operation for path, _, operation in OPERATIONS if path.endswith(":lookup")]
    assert lookups
    for operation in lookups:
        examples = operation["requestBody"]["content"]["application/json"]["examples"]
        for example in examples.values():
            decode_lookup(json.dumps(example["value"]).encode(), Limits())


def test_a_model_has_a_document_of_its_own():
    app = make_app(ui="true")
    document = ask(app, "GET", "/v1/models/m/openapi.json").json()
    (path,) = document["paths"]
    assert path == "/v1/models/m:predict"
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    requests = {schema["title"]: schema for schema in body["schema"]["oneOf"]}
    assert requests["serving_default"]["properties"]["instances"]["items"] == {"type": "number"}
    row = requests["both"]["properties"]["instances"]["items"]
    assert row["required"] == ["a", "s"]
    assert row["properties"]["a"] == {"type": "integer"}
    assert requests["both"]["required"] == ["instances", "signature_name"]


def test_inputs_with_different_numbers_of_rows_are_documented_as_columns():
    int64 = dtype_of_name("int64")
    inputs = {name: TensorSpec(name, int64, (None,)) for name in ("user", "item", "row_splits")}
    outputs = {"score": TensorSpec("score", dtype_of_name("float"), (None, 2))}
    rank = SignatureSpec("rank", inputs, outputs)
    stats = SignatureSpec("de_stats", {}, outputs)  # takes no rows
    document = model_openapi("m", {"rank": rank, "de_stats": stats})
    operation = document["paths"]["/v1/models/m:predict"]["post"]
    told = (operation["requestBody"], operation["responses"]["200"])
    (schema,), (answer,) = (each["content"]["application/json"]["schema"]["oneOf"] for each in told)
    assert schema["required"] == ["inputs", "signature_name"]
    columns = schema["properties"]["inputs"]
    assert columns["required"] == ["item", "row_splits", "user"]
    assert columns["properties"]["user"] == {"type": "array", "items": {"type": "integer"}}
    assert answer["required"] == ["outputs"]
    pair = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    assert answer["properties"]["outputs"] == {"type": "array", "items": pair}
