import { SpanStatusCode, trace } from "@opentelemetry/api";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterEach, expect, test, vi } from "vitest";
import { Fault } from "../src/fault/fault.ts";
import { spans } from "../src/otel.ts";

afterEach(() => {
  vi.unstubAllEnvs();
  trace.disable();
});

test.each([
  ["", "upstream", { code: SpanStatusCode.ERROR }, "upstream"],
  ["true", "upstream", { code: SpanStatusCode.ERROR, message: "no user hunter2" }, "upstream"],
  ["true", "cancelled", { code: SpanStatusCode.UNSET }, undefined],
] as const)("capture=%j %s", async (capture, kind, status, type) => {
  vi.stubEnv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capture);
  const kept = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(kept)] }));
  const ctx = { tool: "t", call: "c", turn: "u", attempt: 1, headers: {} };
  const fails = async () => {
    throw new Fault(kind, "no user hunter2");
  };
  await expect(spans()(ctx as never, fails)).rejects.toThrow();
  const [span] = kept.getFinishedSpans();
  expect(span!.status).toEqual(status);
  expect(span!.attributes["error.type"]).toBe(type);
});
