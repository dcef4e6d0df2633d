"""OpenTelemetry spans, one per request. Health probes and metrics have none."""

from typing import Any

from opentelemetry import propagate, trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .front import raw_path, request_of

_UNTRACED = (b"/livez", b"/readyz", b"/startupz", b"/metrics", b"/version", b"/v2/health/")


class TracingError(Exception):
    """Tracing cannot be set up; the message says what to install."""


class Tracing:
    """Wraps each request in a span. Spans of model servers become children of this span."""

    def __init__(self, app: ASGIApp) -> None:
        """Wraps an application."""
        self._app = app
        self._tracer = trace.get_tracer("gateway")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        if scope["type"] != "http" or raw_path(scope).startswith(_UNTRACED):
            await self._app(scope, receive, send)
            return
        carrier = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        with self._tracer.start_as_current_span(
            scope["method"], propagate.extract(carrier), trace.SpanKind.SERVER
        ) as span:
            status = 0

            async def send_noted(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            onward: dict[str, str] = {}
            propagate.inject(onward)
            added = {name.encode(): value.encode() for name, value in onward.items()}
            kept = [header for header in scope["headers"] if header[0] not in added]
            scope["headers"] = [*kept, *added.items()]
            try:
                await self._app(scope, receive, send_noted)
            finally:
                request = request_of(scope)
                span.update_name(f"{scope['method']} {request.verb}")
                span.set_attribute("http.request.method", scope["method"])
                span.set_attribute("gateway.model", request.model)
                span.set_attribute("gateway.request_id", request.id)
                for stage, seconds in request.stages.items():
                    span.set_attribute(f"gateway.{stage}_seconds", seconds)
                if status:
                    span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(trace.StatusCode.ERROR)


def export_spans() -> Any:
    """Exports spans as OpenTelemetry's OTEL_ variables configure; returns the provider.

    Raises:
        TracingError: The SDK or its exporter is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracingError(
            "Tracing needs OpenTelemetry's SDK and OTLP exporter: "
            f"pip install 'de-core-gateway[otel]'. Received: {error}"
        ) from None
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
