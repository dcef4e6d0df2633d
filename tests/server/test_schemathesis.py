"""Requests made up from the OpenAPI document: no failure, and no answer that it does not tell of.

Runs where schemathesis is installed: pip install 'de-core[proofs]'.
"""

from __future__ import annotations

import pytest

from tests.server.support.gateway_process import STUB, GatewayProcess

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    log = tmp_path_factory.mktemp("schemathesis") / "log"
    with GatewayProcess(None, log, "--rate-per-second", "0", module=STUB) as gateway:
        gateway.wait_ready()
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{gateway.port}/openapi.json")
        assert "Traceback" not in gateway.log()


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
def test_answers_are_those_the_document_tells_of(case):
    response = case.call()
    case.validate_response(
        response,
        checks=[
            schemathesis.checks.not_a_server_error,
            schemathesis.specs.openapi.checks.status_code_conformance,
            schemathesis.specs.openapi.checks.content_type_conformance,
            schemathesis.specs.openapi.checks.response_schema_conformance,
        ],
    )
