"""OpenTelemetry, where it is installed (``pip install toolbus[otel]``) and set up. Without it nothing happens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .wire.refs import CallRef

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace

    _tracer: Any = trace.get_tracer("toolbus")
except ImportError:
    _tracer = None


def enabled() -> bool:
    """Whether anybody has set up OpenTelemetry: without that spans go nowhere and need not be made."""
    return _tracer is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def span(tool: str, ref: str, worker: str, template: str, header: Mapping[str, str]) -> Iterator[Any]:
    """The span ``execute_tool <tool>`` around a handler, a child of the caller's. Only where it is ``enabled``. It says
    what spans of workers in every language say; ``template`` is the tool's subject, with a hole for its name.
    """
    parent = propagate.extract({k.lower(): v for k, v in header.items()})
    attributes: dict[str, str | int] = {
        "gen_ai.tool.name": tool,
        "messaging.system": "nats",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.template": template,
        "toolbus.worker": worker,
    }
    if ref:  # a bare request has none
        turn, call, attempt = CallRef.parse(ref)
        attributes |= {
            "messaging.message.conversation_id": turn,
            "toolbus.turn": turn,
            "toolbus.call": call,
            "toolbus.attempt": attempt,
        }
    token = otel_context.attach(parent)
    try:
        with _tracer.start_as_current_span(
            f"execute_tool {tool}",
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as made:
            yield made
    finally:
        otel_context.detach(token)


def failed(made: Any, kind: str, execution: str, message: str) -> None:
    """Say on a span that its call ended with a fault. What was cancelled did not fail. The message may quote arguments, so
    it stays away unless content is wanted."""
    if execution:
        made.set_attribute("toolbus.execution", execution)
    if kind == "cancelled":
        return
    made.set_attribute("error.type", kind)
    made.set_status(trace.StatusCode.ERROR, message[:500] if _wants_content() else None)


def _wants_content() -> bool:
    wanted = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    return wanted.strip().lower() in ("true", "span_only", "span_and_event")


def outgoing() -> dict[str, str]:
    """The headers that carry the current trace on, or none."""
    carrier: dict[str, str] = {}
    if enabled():
        propagate.inject(carrier)
    return carrier
