// A worker with one tool whose spans go where the OTEL_ variables say.
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { detectResources, envDetector } from "@opentelemetry/resources";
import { NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { defineTool, serve } from "toolbus";

const provider = new NodeTracerProvider({
  resource: detectResources({ detectors: [envDetector] }),
  spanProcessors: [new SimpleSpanProcessor(new OTLPTraceExporter())],
});
provider.register();

const echo = defineTool(
  { name: "echo_typescript", description: "Says hello.", inputJSONSchema: { type: "object" }, effect: "read" },
  async () => "hello",
);
await serve([echo]);
await provider.shutdown();
