// A worker with one tool whose spans go, as OTLP in JSON, to OTEL_EXPORTER_OTLP_ENDPOINT. Its argument is the folder of the SDK.
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const sdk = resolve(process.argv[2]);
const need = createRequire(pathToFileURL(`${sdk}/package.json`));
const { context, propagation, trace } = need("@opentelemetry/api");
const { AsyncLocalStorageContextManager } = need("@opentelemetry/context-async-hooks");
const { W3CTraceContextPropagator } = need("@opentelemetry/core");
const { BasicTracerProvider, SimpleSpanProcessor } = need("@opentelemetry/sdk-trace-base");

const collector = {
  export(spans, done) {
    const all = spans.map((s) => ({
      name: s.name,
      traceId: s.spanContext().traceId,
      spanId: s.spanContext().spanId,
      parentSpanId: s.parentSpanContext?.spanId ?? s.parentSpanId,
    }));
    fetch(`${process.env.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ resourceSpans: [{ scopeSpans: [{ spans: all }] }] }),
    }).then(
      (r) => r.ok ? done({ code: 0 }) : Promise.reject(new Error(`the collector says ${r.status}`)),
    ).catch((error) => {
      console.error("spans were lost:", all, error); // the test shows it where it misses one
      done({ code: 1, error });
    });
  },
  shutdown: async () => {},
};

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(collector)] }));

const { defineTool, serve } = await import(pathToFileURL(`${sdk}/dist/index.js`));
const object = { type: "object" };
await serve([defineTool({ name: "echo_typescript", description: "Says hello.", inputJSONSchema: object, effect: "read" }, async () => "hello")]);
