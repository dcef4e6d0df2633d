"""Requests generated from the OpenAPI document: no failure, and only documented answers."""

import hypothesis
import pytest
import schemathesis

from tests.server.support.gateway_process import GatewayProcess

FLAGS = ("--rate-per-second", "0")
KNOWN = {"model": "m", "version": 3, "table": "user"}


def is_no_failure(_context, response, _case) -> None:
    """501 is an answer: the request asked for shared memory, for example."""
    assert response.status_code != 500, response.text


def check(operation, examples: int, known: dict) -> None:
    from schemathesis.specs.openapi import checks

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    def run(case):
        for name in known.keys() & (case.path_parameters or {}).keys():
            case.path_parameters[name] = known[name]
        # A busy machine may need longer than a client that is in a hurry.
        (case.headers or {}).pop("X-Request-Timeout-Ms", None)
        case.call_and_validate(
            checks=[
                is_no_failure,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ]
        )

    run()


def operations_of(gateway: GatewayProcess) -> list:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{gateway.port}/openapi.json")
    return [result.ok() for result in schema.get_all_operations()]


def test_some_answers_match_the_openapi_document(stub):
    operations = {each.label: each for each in operations_of(stub)}
    for name in ("POST /v1/models/{model}:predict", "POST /v1/models/{model}:lookup"):
        check(operations[name], 5, KNOWN)


@pytest.mark.slow
def test_answers_match_the_openapi_document(stub):
    operations = operations_of(stub)
    assert len(operations) > 25
    for operation in operations:
        check(operation, 15, {})
        check(operation, 30, KNOWN)
