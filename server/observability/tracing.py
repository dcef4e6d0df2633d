"""OpenTelemetry spans, one per request over any transport. Health probes and metrics have none."""

from opentelemetry import context, propagate, trace

from ..request import Request

_UNTRACED = (
    b"/livez",
    b"/readyz",
    b"/startupz",
    b"/metrics",
    b"/version",
    b"/v2/health/",
    b"/inference.GRPCInferenceService/Server",
)


class Tracing:
    """Records spans. The calls to model servers become children of the request's span."""

    def __init__(self) -> None:
        """Creates a recorder that uses OpenTelemetry's tracer provider."""
        self._tracer = trace.get_tracer("gateway")

    def begin(self, request: Request) -> None:
        """Starts the span of a request, as the current span of the running task."""
        if request.path.startswith(_UNTRACED):
            return
        sent = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers.items()
        }
        span = self._tracer.start_span(
            request.method, propagate.extract(sent), trace.SpanKind.SERVER
        )
        request.span = span, context.attach(trace.set_span_in_context(span))
        onward: dict[str, str] = {}
        propagate.inject(onward)
        added = {name.encode(): value.encode() for name, value in onward.items()}
        request.headers = {**request.headers, **added}

    def end(self, request: Request, status: int) -> None:
        """Ends the span of a request. The same task must have called `begin`."""
        if request.span is None:
            return
        span, token = request.span
        span.update_name(f"{request.method} {request.verb}")
        span.set_attribute("http.request.method", request.method)
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("url.path", request.path.decode("latin-1"))
        span.set_attribute("gateway.model", request.model)
        span.set_attribute("gateway.request_id", request.id)
        for stage, seconds in request.stages.items():
            span.set_attribute(f"gateway.{stage}_seconds", seconds)
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
        span.end()
        context.detach(token)


def export_spans() -> None:
    """Exports spans as OpenTelemetry's OTEL_ variables configure; needs its SDK and exporter."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
