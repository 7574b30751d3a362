// The worker that conformance/README.md asks for.

import { z } from "zod";
import { defineTool, Fault, serve } from "../src/index.ts";

const any = { type: "object" } as const;
const whole = { type: "integer", minimum: 0 } as const;

const echo = defineTool(
  { name: "conf_echo", description: "Answers with its arguments.", input: any, effect: "read" },
  (args) => args,
);

const size = defineTool(
  { name: "conf_size", description: "Counts bytes.", input: z.object({ data: z.string() }), effect: "read" },
  ({ data }) => ({ bytes: Buffer.byteLength(data) }),
);

const add = defineTool(
  {
    name: "conf_add",
    description: "Adds two numbers.",
    input: {
      type: "object",
      properties: { a: { type: "integer" }, b: { type: "integer" } },
      required: ["a", "b"],
      additionalProperties: false,
    },
    effect: "read",
  },
  ({ a, b }) => ({ sum: a + b }),
);

const fail = defineTool(
  { name: "conf_fail", description: "Fails as it is told.", input: { type: "object", required: ["kind"] } },
  (args) => {
    const { kind, message, code, detail, retry_after_ms, execution } = args as Record<string, any>;
    throw new Fault(kind, message ?? "", {
      ...(code && { code }),
      ...(detail && { detail }),
      ...(retry_after_ms && { retryAfterMs: retry_after_ms }),
      ...(execution && { execution }),
    });
  },
);

const crash = defineTool({ name: "conf_crash", description: "Crashes.", input: any }, () => {
  throw new Error("this went wrong in a way that nobody expected");
});

const sleep = defineTool(
  {
    name: "conf_sleep",
    description: "Sleeps.",
    input: {
      type: "object",
      properties: { ms: whole, progress_every_ms: whole, ignore_cancel: { type: "boolean" } },
      required: ["ms"],
    },
    effect: "read",
  },
  async ({ ms, progress_every_ms, ignore_cancel }, ctx) => {
    const begun = performance.now();
    const slept = () => Math.min(ms, Math.round(performance.now() - begun));
    const ticker = progress_every_ms ? setInterval(() => ctx.progress(slept(), ms), progress_every_ms) : undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        if (ignore_cancel) return;
        ctx.signal.addEventListener("abort", () => {
          clearTimeout(timer);
          reject(ctx.signal.reason);
        });
      });
    } finally {
      clearInterval(ticker);
    }
    return { slept: ms };
  },
);

const context = defineTool(
  { name: "conf_context", description: "Says what it was told.", input: any, effect: "read" },
  (_, ctx) => ({
    turn: ctx.turn,
    call: ctx.call,
    attempt: ctx.attempt,
    session: ctx.session,
    key: ctx.key,
    timeout_ms: ctx.timeoutMs,
    traceparent: ctx.traceparent,
  }),
);

const stream = defineTool(
  { name: "conf_stream", description: "Sends pieces.", input: z.object({ pieces: z.int().min(0) }), effect: "read" },
  ({ pieces }, ctx) => {
    for (let i = 1; i <= pieces; i++) ctx.partial({ i });
    return { pieces };
  },
);

const big = defineTool(
  { name: "conf_big", description: "Answers at length.", input: z.object({ bytes: z.int().min(0) }), effect: "read" },
  ({ bytes }) => ({ data: "x".repeat(bytes) }),
);

let runs = 0;
const count = defineTool(
  {
    name: "conf_count",
    description: "Counts its runs.",
    input: z.object({ n: z.int() }),
    effect: "write",
    keepsKeys: true,
  },
  ({ n }) => ({ runs: ++runs, n }),
);

await serve([echo, size, add, fail, crash, sleep, context, stream, big, count]);
