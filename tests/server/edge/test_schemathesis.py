"""Requests generated from the OpenAPI document: no failure, and only documented answers.

Needs schemathesis, which the extra `test` installs.
"""

from __future__ import annotations

import hypothesis
import pytest

from tests.server.support.gateway_process import STUB, GatewayProcess

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    log = tmp_path_factory.mktemp("schemathesis") / "log"
    with GatewayProcess(None, log, "--rate-per-second", "0", module=STUB) as gateway:
        gateway.wait_ready()
        yield gateway
        assert "Traceback" not in gateway.log()


KNOWN = {"model": "m", "version": 3, "table": "user"}


def check(operation, examples: int, known: dict) -> None:
    from schemathesis.checks import not_a_server_error
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
        case.call_and_validate(
            checks=[
                not_a_server_error,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ]
        )

    run()


def test_answers_match_the_openapi_document(stub):
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{stub.port}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 25
    for operation in operations:
        check(operation, 15, {})
        check(operation, 30, KNOWN)
