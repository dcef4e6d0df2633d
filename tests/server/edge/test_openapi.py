"""The OpenAPI document matches the gateway's answers."""

from __future__ import annotations

import json

import pytest

from server.errors import ServingError
from server.limits import Limits
from server.routers.openapi import model_openapi
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire.lookup import decode_lookup
from server.wire.oip import decode_infer
from server.wire.paths import parse_path, parse_v2_path
from tests.server.support.asgi import ask, make_app

DOCUMENT = make_app(ui="true").openapi()


def decode_infer_json(body, limits):
    return decode_infer(body, None, limits)


OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_has_a_schema_and_every_schema_a_reference():
    used = {name.removeprefix("#/components/schemas/") for name in references(DOCUMENT)}
    assert used == DOCUMENT["components"]["schemas"].keys()


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_path_exists_and_names_its_parameters(path, method, operation):
    parse = parse_v2_path if path.startswith("/v2/") else parse_path
    parameters = [p for p in operation.get("parameters", []) if p["in"] == "path"]
    for parameter in parameters:
        assert f"{{{parameter['name']}}}" in path
        path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    assert "{" not in path
    if path.startswith(("/v1/", "/v2/models")):
        parse(method.upper(), path.encode())
    else:
        app = make_app(ui="true")
        assert ask(app, method.upper(), path).status == 200


def test_every_operation_has_an_id_and_every_array_an_item_type():
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))
    assert all(name.isidentifier() for name in ids)

    def arrays(value):
        if isinstance(value, dict):
            yield from ([value] if value.get("type") == "array" else [])
            for item in value.values():
                yield from arrays(item)

    assert all("items" in array for array in arrays(DOCUMENT))


@pytest.mark.parametrize(
    ("body", "decode"), [("LookupBody", decode_lookup), ("InferBody", decode_infer_json)]
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
    document = model_openapi("m", {"rank": SignatureSpec("rank", inputs, {})})
    body = document["paths"]["/v1/models/m:predict"]["post"]["requestBody"]["content"]
    (schema,) = body["application/json"]["schema"]["oneOf"]
    assert schema["required"] == ["inputs", "signature_name"]
    assert schema["properties"]["inputs"]["required"] == ["item", "row_splits", "user"]
