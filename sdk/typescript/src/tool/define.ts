import { nameProblem } from "../wire/names.ts";
import type { BreakerPolicy, Classification, Effect, Manifest, RetryPolicy } from "../wire/records.ts";
import type { Context } from "../worker/context.ts";
import { canonicalRaw, digest } from "./canonical.ts";
import type { Infer, InferResult, JSONSchema, Schema } from "./infer.ts";
import { type Compiled, compileSchema } from "./schema.ts";

/** What a tool declares about itself: docs/manifest.md has the whole of it. Only name is required. */
export interface ToolOptions<I extends Schema | undefined, O extends Schema | undefined> {
  /** 1 to 64 of `A-Z a-z 0-9 _ -`: part of its NATS subject, and what models call it. */
  name: string;
  /** What it does, for the model that chooses. At most 4,096 characters. */
  description?: string;
  version?: string;
  /** Of the arguments, which are always one object: a schema of zod, valibot, arktype and others, or JSON Schema. */
  input?: I;
  /** Of the result. One that does not fit is an InvalidResult. */
  output?: O;
  /** The JSON Schemas, where the library of input or output gives none. */
  inputJSONSchema?: JSONSchema;
  outputJSONSchema?: JSONSchema;
  /** What a second run of the same call does: it decides whether a call that may have run is sent again. */
  effect?: Effect;
  /** How long one attempt may take, in milliseconds. Default 30,000. */
  timeout?: number;
  /** How long one attempt may go on without progress, in milliseconds. Off by default. */
  idleTimeout?: number;
  /** How failed attempts are repeated. */
  retry?: RetryPolicy;
  /** When calls are not even tried. */
  circuitBreaker?: BreakerPolicy;
  /** What faults of this tool mean, where they mean something else than usual. */
  classification?: Classification;
  /** Says that the tool remembers idempotency keys beyond the worker's life, so that a write may be sent again. */
  keepsKeys?: boolean;
  fallback?: string;
  alternatives?: string[];
  fallbackOn?: string[];
  optional?: boolean;
  default?: unknown;
  tags?: string[];
  annotations?: Record<string, string>;
}

/**
 * Runs calls of one tool, many at once. It should end soon after ctx.signal aborts, which happens at the call's deadline
 * and on a cancel; one that does not is answered for, and counted as leaked. What it returns is the result, as JSON;
 * Bytes are a result of another content type. It throws a Fault to say exactly what went wrong; faultOf classifies others.
 */
export type Handler<Args, Result> = (args: Args, ctx: Context) => Result | Promise<Result>;

/** A tool: its manifest and what runs it. Make it with defineTool. */
export interface Tool<Args = any, Result = any> {
  readonly name: string;
  readonly manifest: Manifest;
  /** Names the content of the manifest, the same in every language. */
  readonly digest: string;
  readonly input: Compiled;
  readonly output: Compiled;
  readonly handler: Handler<Args, Result>;
}

type Args<I> = I extends Schema ? Infer<I> : Record<string, unknown>;
type Answer<O> = O extends Schema ? InferResult<O> | Bytes : unknown;

/** Makes a tool. It throws an Error that says what is wrong with the options. */
export function defineTool<
  const I extends Schema | undefined = undefined,
  const O extends Schema | undefined = undefined,
>(options: ToolOptions<I, O>, handler: Handler<Args<I>, Answer<O>>): Tool<Args<I>, Answer<O>> {
  const where = `tool ${JSON.stringify(String(options?.name))}`;
  const fail = (problem: string): never => {
    throw new Error(`${where}: ${problem}`);
  };
  if (typeof options?.name !== "string") fail("name: expected text");
  const problem = nameProblem(options.name) ?? flawOf(options);
  if (problem) fail(problem);
  if (typeof handler !== "function") fail(`the handler: expected a function, got ${typeof handler}`);

  const side = (given: Schema | undefined, json: JSONSchema | undefined, name: "input" | "output"): Compiled => {
    try {
      if (given === undefined || json === undefined) return compileSchema(given ?? json, name);
      const { validate } = compileSchema(
        { "~standard": { ...(given as any)["~standard"], jsonSchema: { [name]: () => json } } } as any,
        name,
      );
      return { json, validate };
    } catch (err) {
      return fail((err as Error).message);
    }
  };
  const input = side(options.input, options.inputJSONSchema, "input");
  const output = side(options.output, options.outputJSONSchema, "output");
  const manifest = manifestOf(options, input, output);
  for (const [field, raw] of [
    ["input", manifest.inputSchema],
    ["output", manifest.outputSchema],
    ["default", manifest.default],
  ] as const) {
    if (raw && raw.bytes.length > 64 << 10)
      fail(`${field}: expected at most 65536 bytes of JSON, got ${raw.bytes.length}`);
  }
  const type = typeof input.json === "object" ? (input.json as { type?: unknown }).type : undefined;
  if (typeof type === "string" && type !== "object")
    fail(`input: expected a schema of an object, as arguments always are, got one of ${type}`);
  return Object.freeze({ name: options.name, manifest, digest: digest(manifest), input, output, handler });
}

function manifestOf(o: ToolOptions<any, any>, input: Compiled, output: Compiled): Manifest {
  const m: Manifest = {
    id: o.name,
    version: o.version ?? "",
    description: o.description ?? "",
    effect: o.effect ?? "",
    timeoutMs: o.timeout ?? 0,
    idleTimeoutMs: o.idleTimeout ?? 0,
    idempotencyKeys: o.keepsKeys ?? false,
    fallback: o.fallback ?? "",
    alternatives: o.alternatives ?? [],
    fallbackOn: o.fallbackOn ?? [],
    optional: o.optional ?? false,
    tags: o.tags ?? [],
    annotations: o.annotations ?? {},
  };
  if (input.json !== undefined) m.inputSchema = canonicalRaw(input.json);
  if (output.json !== undefined) m.outputSchema = canonicalRaw(output.json);
  if (o.retry) m.retryPolicy = o.retry;
  if (o.circuitBreaker) m.circuitBreaker = o.circuitBreaker;
  if (o.classification) m.classification = o.classification;
  if (o.default !== undefined) m.default = canonicalRaw(o.default);
  return m;
}

const day = 24 * 60 * 60 * 1000;

/** Is the first thing that is wrong with the plain options. Executors check the manifest as a whole. */
function flawOf(o: ToolOptions<any, any>): string | undefined {
  for (const field of ["timeout", "idleTimeout"] as const) {
    const ms = o[field];
    if (ms !== undefined && !(Number.isInteger(ms) && ms >= 1 && ms <= day))
      return `${field}: expected milliseconds, a whole number from 1 to ${day}, got ${ms}`;
  }
  if ((o.idleTimeout ?? 0) > (o.timeout ?? 30_000))
    return `idleTimeout: expected at most timeout, which is ${o.timeout ?? 30_000}, got ${o.idleTimeout}`;
  if (o.effect && !["read", "idempotent", "write"].includes(o.effect))
    return `effect: expected read, idempotent or write, got ${JSON.stringify(o.effect)}`;
  if ((o.description ?? "").length > 4096)
    return `description: expected at most 4096 characters, got ${o.description!.length}`;
  if ((o.version ?? "").length > 64) return `version: expected at most 64 characters, got ${o.version!.length}`;
  if ((o.alternatives ?? []).length > 3) return `alternatives: expected at most 3, got ${o.alternatives!.length}`;
  return undefined;
}

/** A result or piece that is not JSON. */
export class Bytes {
  readonly data: Uint8Array;
  readonly contentType: string;

  constructor(data: Uint8Array, contentType = "application/octet-stream") {
    this.data = data;
    this.contentType = contentType;
  }
}
