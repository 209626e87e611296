"""Traces: from a request through the group it went out with to each command, and over the outbox.

Off unless `TICKETING_OTLP_ENDPOINT` names a collector; then nothing here costs more than a look at
a variable. Span attributes are names and counts, never values: a value may be personal data.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import Token
from dataclasses import dataclass

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)
from opentelemetry.trace.propagation import tracecontext

EXPORT_SECONDS_MAX = 5
SPANS_WAITING_MAX = 8_192

_propagator = tracecontext.TraceContextTextMapPropagator()


class _Tracing:
    """The tracer of this process, or none."""

    tracer: Tracer | None = None
    provider: TracerProvider | None = None


def begin(service: str, endpoint: str, exporter: SpanExporter | None = None) -> None:
    """Send this process's spans to the collector at `endpoint` (OTLP over HTTP), if there is one.

    `exporter` takes its place. Spans that a collector does not take in time are thrown away:
    nobody waits for it.
    """
    if not endpoint and exporter is None:
        return
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    sender = exporter or OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS_MAX
    )
    provider.add_span_processor(BatchSpanProcessor(sender, max_queue_size=SPANS_WAITING_MAX))
    _Tracing.provider = provider
    _Tracing.tracer = provider.get_tracer("ticketing")


def end() -> None:
    """Send what waits and stop."""
    if _Tracing.provider is not None:
        _Tracing.provider.shutdown()
    _Tracing.provider = _Tracing.tracer = None


def is_on() -> bool:
    """Whether anything is traced."""
    return _Tracing.tracer is not None


@dataclass(frozen=True)
class RequestSpan:
    """The span of a request that is being answered."""

    span: Span
    token: Token[context.Context]


def begin_request(method: str, traceparent: bytes | None) -> RequestSpan | None:
    """Begin the span of a request, as a part of the caller's trace, or of one of its own.

    Whoever sends `traceparent` decides by its flag whether the trace is kept. It is the present
    span until `end_request`. None where nothing is traced.
    """
    if _Tracing.tracer is None:
        return None
    carrier = {"traceparent": traceparent.decode()} if traceparent else {}
    span = _Tracing.tracer.start_span(
        method, context=_propagator.extract(carrier), kind=SpanKind.SERVER
    )
    return RequestSpan(span, context.attach(trace.set_span_in_context(span)))


def end_request(begun: RequestSpan, method: str, route: str, status: int) -> None:
    """End the span of a request with its name and outcome."""
    context.detach(begun.token)
    begun.span.update_name(f"{method} {route}")
    begun.span.set_attribute("http.request.method", method)
    begun.span.set_attribute("http.route", route)
    begun.span.set_attribute("http.response.status_code", status)
    if status >= 500:
        begun.span.set_status(Status(StatusCode.ERROR))
    begun.span.end()


def traceparent_of(begun: RequestSpan) -> bytes:
    """What the answer carries."""
    return _written(begun.span.get_span_context()).encode()


def present() -> SpanContext | None:
    """What a later part of the work can point back to."""
    if _Tracing.tracer is None:
        return None
    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


@contextmanager
def work(name: str, causes: Sequence[object] = ()) -> Iterator[None]:
    """The span of work that has several causes or was caused long ago, pointing back to each."""
    if _Tracing.tracer is None:
        yield
        return
    known = [cause for cause in causes if isinstance(cause, SpanContext)]
    if known and not any(cause.trace_flags.sampled for cause in known):
        yield
        return
    links = [Link(cause) for cause in known]
    with _Tracing.tracer.start_as_current_span(
        name, context=context.Context(), links=links, record_exception=False
    ) as span:
        span.set_attribute("causes", len(causes))
        yield


def traceparent() -> str | None:
    """The present span in the form in which it is stored with a message; None without one."""
    found = present()
    return None if found is None else _written(found)


def _written(place: SpanContext) -> str:
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{int(place.trace_flags):02x}"


def cause(stored: str | None) -> SpanContext | None:
    """What `traceparent` gave."""
    if stored is None or _Tracing.tracer is None:
        return None
    _, trace_id, span_id, flags = stored.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))


def command_begins(command: str, database: str, collection: object) -> Span | None:
    """A span of a command to the database, where something traced asked for it."""
    if _Tracing.tracer is None or isinstance(trace.get_current_span(), NonRecordingSpan):
        return None
    attributes = {
        "db.system.name": "mongodb",
        "db.namespace": database,
        "db.operation.name": command,
    }
    if isinstance(collection, str):
        attributes["db.collection.name"] = collection
    return _Tracing.tracer.start_span(
        f"{command} {collection}" if isinstance(collection, str) else command,
        kind=SpanKind.CLIENT,
        attributes=attributes,
    )


def command_ends(span: Span, problem: str | None) -> None:
    """End the span of a command; `problem` is the error's name."""
    if problem is not None:
        span.set_status(Status(StatusCode.ERROR, problem))
    span.end()
