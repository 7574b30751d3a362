/**
 * Tools for AI agents over NATS. defineTool makes a tool, serve runs it as a worker, Client hands turns of calls to
 * executors. Everything that goes wrong with a call is a Fault.
 */
export { Bus, type ConnectOptions, connect } from "./bus/connect.ts";
export { Client, type Turn } from "./client/client.ts";
export { faultOf } from "./fault/classify.ts";
export * from "./fault/fault.ts";
export { fromHTTP, type Kind, kinds, type Spec } from "./fault/kinds.ts";
export { type ServeOptions, serve, stderr } from "./serve.ts";
export { digest, manifestJSON } from "./tool/canonical.ts";
export { Bytes, defineTool, type Handler, type Tool, type ToolOptions } from "./tool/define.ts";
export type { FromJSON, Infer, InferResult, JSONSchema, Schema } from "./tool/infer.ts";
export type { StandardSchema } from "./tool/standard.ts";
export { sdkVersion } from "./version.ts";
export type * from "./wire/records.ts";
export type { Context, Logger } from "./worker/context.ts";
export { type Stats, Worker, type WorkerOptions } from "./worker/worker.ts";
