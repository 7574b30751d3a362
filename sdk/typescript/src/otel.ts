/**
 * OpenTelemetry for workers: a span around every handler, a child of the caller's where the call brings a traceparent.
 * It needs the package @opentelemetry/api, an optional peer; without an SDK that is set up it does nothing.
 */
import {
  context,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type TextMapGetter,
  trace,
} from "@opentelemetry/api";
import { faultOf } from "./fault/classify.ts";
import { sdkVersion } from "./version.ts";
import { get, type Header } from "./wire/headers.ts";
import type { WorkerOptions } from "./worker/worker.ts";

const carrier: TextMapGetter<Header> = { keys: (h) => Object.keys(h), get: (h, name) => get(h, name) || undefined };

/** Is WorkerOptions.around that makes the spans. */
export function spans(): NonNullable<WorkerOptions["around"]> {
  const tracer = trace.getTracer("toolbus", sdkVersion);
  return (ctx, next) => {
    const parent = propagation.extract(ROOT_CONTEXT, ctx.headers, carrier);
    const attributes = {
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": ctx.tool,
      "gen_ai.tool.call.id": ctx.call,
      "toolbus.turn": ctx.turn,
      "toolbus.attempt": ctx.attempt,
    };
    return context.with(parent, () =>
      tracer.startActiveSpan(`execute_tool ${ctx.tool}`, { kind: SpanKind.CONSUMER, attributes }, async (span) => {
        try {
          return await next();
        } catch (err) {
          const fault = faultOf(err);
          if (fault.kind !== "cancelled") {
            span.setAttribute("error.type", fault.kind);
            span.setStatus({ code: SpanStatusCode.ERROR, ...(wantsContent() && { message: fault.message }) });
          }
          throw err;
        } finally {
          span.end();
        }
      }),
    );
  };
}

/** What a fault says may quote arguments, so it is on no span unless content is asked for. */
function wantsContent(): boolean {
  const wanted = process.env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] ?? "";
  return ["true", "span_only", "span_and_event"].includes(wanted.trim().toLowerCase());
}
