import { SpanStatusCode, trace } from "@opentelemetry/api";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterEach, expect, test, vi } from "vitest";
import { Fault } from "../src/fault/fault.ts";
import { spans } from "../src/otel.ts";
import { Subjects } from "../src/wire/subjects.ts";

afterEach(() => {
  vi.unstubAllEnvs();
  trace.disable();
});

test.each([
  ["", "upstream", "unknown", { code: SpanStatusCode.ERROR }, "upstream"],
  ["true", "upstream", "unknown", { code: SpanStatusCode.ERROR, message: "no user hunter2" }, "upstream"],
  ["true", "cancelled", "stopped", { code: SpanStatusCode.UNSET }, undefined],
] as const)("capture=%j %s", async (capture, kind, execution, status, type) => {
  vi.stubEnv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capture);
  const kept = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(kept)] }));
  const told = new AbortController();
  if (execution === "stopped") told.abort(new Fault(kind, "the call was cancelled", { execution }));
  const ctx = { tool: "t", call: "c", turn: "u", attempt: 1, headers: {}, signal: told.signal };
  const fails = async () => {
    throw new Fault(kind, "no user hunter2");
  };
  const worker = { id: "w", bus: { subjects: new Subjects() } };
  await expect(spans()(ctx as never, fails, worker as never)).rejects.toThrow();
  const [span] = kept.getFinishedSpans();
  expect(span!.status).toEqual(status);
  // As workers in Go and Python have them.
  expect(span!.attributes).toEqual({
    "gen_ai.tool.name": "t",
    "messaging.system": "nats",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.template": "tb.v1.call.{tool}",
    "messaging.message.conversation_id": "u",
    "toolbus.turn": "u",
    "toolbus.call": "c",
    "toolbus.attempt": 1,
    "toolbus.worker": "w",
    "toolbus.execution": execution,
    ...(type && { "error.type": type }),
  });
});
