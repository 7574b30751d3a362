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
import type { Fault } from "./fault/fault.ts";
import { sdkVersion } from "./version.ts";
import { get, type Header } from "./wire/headers.ts";
import type { Context } from "./worker/context.ts";
import type { WorkerOptions } from "./worker/worker.ts";

const carrier: TextMapGetter<Header> = { keys: (h) => Object.keys(h), get: (h, name) => get(h, name) || undefined };

/** Is WorkerOptions.around that makes the spans. They say what spans of workers in every language say. */
export function spans(): NonNullable<WorkerOptions["around"]> {
  const tracer = trace.getTracer("toolbus", sdkVersion);
  return (ctx, next, worker) => {
    const parent = propagation.extract(ROOT_CONTEXT, ctx.headers, carrier);
    const attributes = {
      "gen_ai.tool.name": ctx.tool,
      "messaging.system": "nats",
      "messaging.operation.name": "process",
      "messaging.operation.type": "process",
      "messaging.destination.template": worker.bus.subjects.call("{tool}"),
      "toolbus.worker": worker.id,
      ...(ctx.turn && {
        "messaging.message.conversation_id": ctx.turn,
        "toolbus.turn": ctx.turn,
        "toolbus.call": ctx.call,
        "toolbus.attempt": ctx.attempt,
      }),
    };
    return context.with(parent, () =>
      tracer.startActiveSpan(`execute_tool ${ctx.tool}`, { kind: SpanKind.CONSUMER, attributes }, async (span) => {
        try {
          return await next();
        } catch (err) {
          const fault = answered(ctx, err);
          span.setAttribute("toolbus.execution", fault.run);
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

/**
 * Is the fault that the call is answered with. An error after the handler was told to stop means that it stopped, unless it
 * says itself that it was done; and what could not be reached did not run, but the handler, which tried to, did.
 */
function answered(ctx: Context, err: unknown): Fault {
  const fault = faultOf(err);
  const said = fault === err;
  if (ctx.signal.aborted && !(said && fault.execution === "done")) return faultOf(ctx.signal.reason);
  return !said && fault.run === "not_started" ? fault.with({ execution: "unknown" }) : fault;
}

/** What a fault says may quote arguments, so it is on no span unless content is asked for. */
function wantsContent(): boolean {
  const wanted = process.env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] ?? "";
  return ["true", "span_only", "span_and_event"].includes(wanted.trim().toLowerCase());
}
