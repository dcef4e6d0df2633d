"""FastAPI and gRPC create a span per request. Needs OpenTelemetry's SDK."""

import asyncio

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from server.request import current_request
from tests.server.support.asgi import PREDICT, ask, make_app
from tests.server.support.grpc_port import PROTOS, ask_grpc, predict_request
from tests.server.support.numpy_engine import NumpyEngine

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


@pytest.fixture(scope="module")
def exporter():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter):
    exporter.clear()
    return exporter


def test_a_request_is_a_span_between_its_client_and_the_model_server(spans):
    engine = NumpyEngine()
    metadata = {}

    async def run(_signature, inputs):
        metadata.update(current_request().metadata)
        return {"y": inputs["x"]}

    engine.servable.run = run
    assert ask(make_app(engine, tracing="true"), *PREDICT, headers=HEADERS).status == 200
    (span,) = spans.get_finished_spans()
    assert span.name == "POST /v1/models/{model}:predict"
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["gateway.model"] == "m"
    assert span.attributes["gateway.decode_seconds"] > 0
    assert metadata["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"


def test_health_probes_and_gateways_without_the_flag_have_no_span(spans):
    ask(make_app(tracing="true"), "GET", "/livez")
    ask(make_app(), *PREDICT)
    assert spans.get_finished_spans() == ()


def test_a_grpc_request_is_a_span_like_one_over_rest(spans):
    plane = make_app(tracing="true").state.plane
    asked = [predict_request(model, x=np.ones(1, np.float32)) for model in ("m", "none")]
    told = asyncio.run(ask_grpc(plane, *asked, metadata=HEADERS.items()))
    assert [code for code, _ in told] == ["OK", "NOT_FOUND"]
    live = "/inference.GRPCInferenceService/ServerLive"
    ((code, _),) = asyncio.run(ask_grpc(plane, PROTOS.PredictRequest(), path=live))
    assert code == "OK"  # and no span
    answered, refused = spans.get_finished_spans()
    for span in (answered, refused):
        assert span.name == "/tensorflow.serving.PredictionService/Predict"
        assert f"{span.context.trace_id:032x}" == TRACE
    assert answered.attributes["gateway.model"] == "m"
    assert answered.attributes["gateway.decode_seconds"] > 0
    codes = [span.attributes["rpc.grpc.status_code"] for span in (answered, refused)]
    assert codes == [0, 5]
