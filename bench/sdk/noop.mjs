// A no-op worker on the TypeScript SDK.
import { defineTool, serve } from "toolbus";

await serve([defineTool({ name: "noop", effect: "read" }, (args) => args)], {
  url: process.env.TOOLBUS_NATS_URL,
  prefix: process.env.TOOLBUS_PREFIX,
  concurrency: Number(process.env.TOOLBUS_CONCURRENCY),
});
