"""OpenTelemetry spans by FastAPI and gRPC, one per request. Health probes and metrics have none."""

from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters

from ..request import Request

_UNTRACED = ("/livez", "/readyz", "/startupz", "/metrics", "/version", "/v2/health/")


def fastapi_telemetry() -> dict[str, Any]:
    """Returns the argument `telemetry` of `FastAPI`."""
    return {
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "exclude": lambda scope: scope["path"].startswith(_UNTRACED),
    }


def grpc_interceptor() -> Any:
    """Returns the interceptor for `grpc.aio.server`."""
    probes = filters.any_of(filters.health_check(), filters.method_prefix("Server"))
    return aio_server_interceptor(filter_=filters.negate(probes))


def pass_on(request: Request) -> None:
    """Makes the calls to model servers children of the current span."""
    onward: dict[str, str] = {}
    propagate.inject(onward)
    added = {name.encode(): value.encode() for name, value in onward.items()}
    request.headers = {**request.headers, **added}


def describe(request: Request) -> None:
    """Adds a request's id, model and stages to the current span."""
    span = trace.get_current_span()
    span.set_attribute("gateway.model", request.model)
    span.set_attribute("gateway.request_id", request.id)
    for stage, seconds in request.stages.items():
        span.set_attribute(f"gateway.{stage}_seconds", seconds)


def export_spans() -> None:
    """Exports spans as OpenTelemetry's OTEL_ variables configure; needs its SDK and exporter."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
