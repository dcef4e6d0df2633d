"""The gateway creates a span per request. Needs OpenTelemetry's SDK."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from server.app import create_app
from server.request import current_request
from server.settings import load_settings
from tests.server.support.asgi import ask
from tests.server.support.numpy_engine import NumpyEngine

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def own(spans):
    """Returns the gateway's spans. Starlette may add its own."""
    return [span for span in spans.get_finished_spans() if "gateway.model" in span.attributes]


def test_a_request_is_a_span_between_its_client_and_the_model_server(spans):
    engine = NumpyEngine()
    metadata = {}

    async def run(_signature, inputs):
        metadata.update(current_request().metadata)
        return {"y": inputs["x"]}

    engine.servable.run = run
    app = create_app(load_settings(model_dir="x", tracing="true"), engine)
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    path, body = "/v1/models/m:predict", b'{"instances": [1.0]}'
    assert ask(app, "POST", path, body, headers=headers).status == 200
    (span,) = own(spans)
    assert span.name == "POST predict"
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["gateway.model"] == "m"
    assert metadata["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    spans.clear()
    ask(create_app(load_settings(model_dir="x", tracing="true"), engine), "GET", "/livez")
    assert own(spans) == []
