"""A worker with one tool whose spans go where the OTEL_ variables say."""

import asyncio
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from toolbus import serve, tool

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)


@tool(effect="read")
async def echo_python() -> str:
    """Says hello."""
    return "hello"


asyncio.run(serve(echo_python, url=os.environ["TOOLBUS_NATS_URL"]))
