// A worker and a client on a real server with a real executor.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterEach, describe, expect, inject, test } from "vitest";
import { z } from "zod";
import {
  type Bus,
  Bytes,
  Client,
  connect,
  defineTool,
  type Event,
  Fault,
  NotFound,
  RateLimited,
  type Tool,
  Worker,
  type WorkerOptions,
} from "../src/index.ts";
import { spans } from "../src/otel.ts";
import { reserved } from "../src/wire/names.ts";
import { scan } from "../src/wire/scan.ts";

const url = inject("url");
const ends: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function bus(): Promise<Bus> {
  const b = await connect({ url });
  ends.push(() => b.close());
  return b;
}

async function start(tools: Tool[], options: WorkerOptions = {}): Promise<Worker> {
  const w = new Worker(await bus(), tools, options);
  const over = w.run();
  ends.push(async () => {
    await w.shutdown();
    await over.catch(() => {});
  });
  await Promise.race([w.ready(), over]);
  return w;
}

async function client(): Promise<Client> {
  return new Client(await bus());
}

const add = defineTool(
  { name: "ts_add", input: z.object({ a: z.number(), b: z.number() }), effect: "read" },
  ({ a, b }) => ({ sum: a + b }),
);

describe.skipIf(!url)("live", () => {
  test("a bare NATS request is a call", async () => {
    await start([add]);
    const b = await bus();
    const m = await b.nc.request(b.subjects.call("ts_add"), '{"a":1,"b":2}');
    expect([m.json(), m.headers]).toEqual([{ sum: 3 }, undefined]);
  });

  test("a turn runs, and its events stream", async () => {
    const slow = defineTool({ name: "ts_slow", input: { type: "object" }, effect: "read" }, async (_, ctx) => {
      ctx.progress(1, 2, "half");
      ctx.partial({ piece: 1 });
      ctx.log.info("here");
      expect([ctx.attempt, ctx.call, ctx.remaining() > 0, ctx.signal.aborted]).toEqual([1, "s", true, false]);
      return { done: true };
    });
    const picture = defineTool(
      { name: "ts_picture", effect: "read" },
      () => new Bytes(new Uint8Array([1, 255]), "image/png"),
    );
    await start([add, slow, picture]);
    const c = await client();
    const events: Event<unknown>[] = [];
    const calls = [
      { id: "a", tool: "ts_add", args: { a: 1, b: 2 } },
      { id: "s", tool: "ts_slow", args: {} },
      { id: "p", tool: "ts_picture" },
      { id: "then", tool: "ts_add", args: { a: { $from: "a", pointer: "/sum" }, b: 4 } },
    ];
    for await (const e of c.stream({ id: "ts-turn", calls })) events.push(e);
    const types = events.map((e) => e.type);
    expect([types[0], types.at(-1)]).toEqual(["TurnStarted", "TurnEnded"]);
    expect(events.find((e) => e.type === "Progress")?.progress).toEqual({ done: 1, total: 2, message: "half" });
    expect(events.find((e) => e.type === "Partial")?.piece).toEqual({ piece: 1 });
    const outcome = events.at(-1)!.outcome!;
    expect(outcome.status).toBe("completed");
    expect(outcome.results.map((r) => [r.call, r.status, r.value])).toEqual([
      ["a", "success", { sum: 3 }],
      ["s", "success", { done: true }],
      ["p", "success", expect.any(Uint8Array)],
      ["then", "success", { sum: 7 }],
    ]);
    await expect.poll(async () => (await c.trace("ts-turn").catch(() => [])).at(-1)?.type).toBe("TurnEnded");
  });

  test("a turn goes on after the executor has said that it is there", async () => {
    const alive = resolvers();
    const b = await bus();
    b.nc.subscribe(b.subjects.reply(reserved, b.id, "*"), {
      callback: (_, m) => {
        if (Buffer.from(m.data).includes("Alive")) alive.resolve(undefined);
      },
    });
    await start([defineTool({ name: "ts_until_alive", effect: "read" }, () => alive.promise.then(() => "there"))]);
    const out = await new Client(b).run({ calls: [{ tool: "ts_until_alive" }] });
    expect([out.status, out.results[0]!.value]).toEqual(["completed", "there"]);
  });

  test("faults come back typed", async () => {
    const limited = defineTool({ name: "ts_limited", effect: "read" }, () => {
      throw new RateLimited("slow down", { retryAfterMs: 60_000, code: "E7" });
    });
    await start([add, limited]);
    const out = await (await client()).run({
      calls: [
        { tool: "ts_limited", timeoutMs: 2000 },
        { tool: "ts_add", args: { a: "x" } },
      ],
    });
    const [first, second] = out.results.map((r) => Fault.fromRecord(r.fault!));
    expect([first!.kind, first!.code, first instanceof RateLimited]).toEqual(["rate_limited", "E7", true]);
    expect(second!.kind).toBe("invalid_arguments");
    expect(out.status).toBe("escalated");
  });

  test("what has a then is waited for, and is no promise", async () => {
    const query = (then: PromiseLike<unknown>["then"]) => ({ then }) as unknown as Promise<unknown>;
    const kept = defineTool({ name: "ts_then", effect: "read" }, () => query((give: any) => give({ n: 1 })));
    const broken = defineTool({ name: "ts_then_not", effect: "read" }, () =>
      query((_, no: any) => no(new NotFound("x"))),
    );
    const field = defineTool({ name: "ts_then_field", effect: "read" }, (args) => args);
    const out = defineTool({ name: "ts_then_out", output: z.object({ n: z.int() }) }, async () => ({ n: 0.5 }));
    await start([kept, broken, field, out]);
    const b = await bus();
    const ask = async (name: string, args = "") => (await b.nc.request(b.subjects.call(name), args)).json();
    expect(await ask("ts_then")).toEqual({ n: 1 });
    expect(await ask("ts_then_not")).toMatchObject({ kind: "not_found" });
    expect(await ask("ts_then_field", '{"then":1}')).toEqual({ then: 1 });
    expect(await ask("ts_then_out")).toMatchObject({ kind: "invalid_result" });
  });

  test("a handler that held everything up is told to stop before it is given up", async () => {
    const busy = defineTool({ name: "ts_busy", effect: "read", timeout: 30 }, async (_, ctx) => {
      for (const end = performance.now() + 400; performance.now() < end; );
      if (!ctx.signal.aborted) await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      await new Promise(setImmediate);
      throw new Error("stopped in the middle");
    });
    const w = await start([busy]);
    const b = await bus();
    const m = await b.nc.request(b.subjects.call("ts_busy"), "", { timeout: 10_000 });
    expect(m.json()).toMatchObject({ kind: "timeout", execution: "stopped", detail: "stopped in the middle" });
    expect(w.stats()).toMatchObject({ leaked: 0, running: 0 });
  });

  test("a cancel stops the handler", async () => {
    let reason: unknown;
    const begun = resolvers();
    const wait = defineTool({ name: "ts_wait", effect: "read" }, async (_, ctx) => {
      begun.resolve(undefined);
      await new Promise((_, reject) => ctx.signal.addEventListener("abort", () => reject(ctx.signal.reason)));
    });
    await start([wait], {
      around: async (ctx, next) => {
        try {
          return await next();
        } finally {
          reason = ctx.signal.reason;
        }
      },
    });
    const abort = new AbortController();
    void begun.promise.then(() => abort.abort());
    const out = await (await client()).run({ calls: [{ tool: "ts_wait" }] }, abort.signal);
    expect([out.status, out.results[0]!.status]).toEqual(["cancelled", "cancelled"]);
    expect((reason as Fault).kind).toBe("cancelled");
  });

  test("what is late is kept", async () => {
    const late = defineTool({ name: "ts_late", effect: "read" }, async () => {
      await sleep(400);
      return { late: true };
    });
    await start([late]);
    const c = await client();
    const out = await c.run({ id: "ts-late", deadlineMs: 100, calls: [{ id: "l", tool: "ts_late" }] });
    expect([out.status, out.running]).toEqual(["timed_out", ["l"]]);
    await expect
      .poll(
        () =>
          c.late("l", "ts-late").then(
            (r) => r.result?.value,
            () => null,
          ),
        { timeout: 5000 },
      )
      .toEqual({ late: true });
    await expect(c.late("nothing", "ts-late")).rejects.toMatchObject({ kind: "not_found" });
  });

  test("large values travel by claim check", async () => {
    const size = defineTool({ name: "ts_size", input: z.object({ data: z.string() }), effect: "read" }, ({ data }) => ({
      n: data.length,
      data,
    }));
    await start([size]);
    const out = await (await client()).run({ calls: [{ tool: "ts_size", args: { data: "x".repeat(3_000_000) } }] });
    expect((out.results[0]!.value as { n: number }).n).toBe(3_000_000);
  });

  test("spans are children of the caller's", async () => {
    const exporter = new InMemorySpanExporter();
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
    trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
    await start([add], { around: spans() });
    const b = await bus();
    const id = "4bf92f3577b34da6a3ce929d0e0e4736";
    const { headers } = await import("@nats-io/transport-node");
    const h = headers();
    h.set("traceparent", `00-${id}-00f067aa0ba902b7-01`);
    await b.nc.request(b.subjects.call("ts_add"), '{"a":1,"b":2}', { timeout: 2000, headers: h });
    await expect
      .poll(() => exporter.getFinishedSpans().map((s) => [s.name, s.spanContext().traceId]))
      .toEqual([["execute_tool ts_add", id]]);
  });

  test("garbage does not stop a worker", async () => {
    const seed = Number(process.env["TOOLBUS_SEED"] ?? Date.now() % 1_000_000);
    console.log(`seed ${seed} (TOOLBUS_SEED)`);
    const roll = dice(seed);
    const w = await start([add], { concurrency: 2 });
    const b = await bus();
    const { headers } = await import("@nats-io/transport-node");
    const names = [
      "Tb-Call",
      "Tb-Frame",
      "Tb-Timeout-Ms",
      "Tb-Tool",
      "Tb-Blob",
      "Tb-Key",
      "Tb-Progress",
      "Content-Type",
    ];
    const values = [
      "t/c/1",
      "t/c/0",
      "ping",
      "cancel",
      "error",
      "-1",
      "99999999999",
      "ts_add",
      "v1;x;9;1;zz",
      "$JS.API.INFO",
      "application/msgpack",
      "\u00e9",
    ];
    for (let i = 0; i < 500; i++) {
      const h = headers();
      for (let n = roll(4); n > 0; n--) h.set(names[roll(names.length)]!, values[roll(values.length)]!);
      const body = Buffer.from(Array.from({ length: roll(40) }, () => roll(256)));
      const subject = [
        b.subjects.call("ts_add"),
        b.subjects.to(w.id),
        b.subjects.cancel("ts_add"),
        b.subjects.rollcall(),
      ][roll(4)]!;
      b.nc.publish(subject, body, { headers: h, reply: ["_INBOX.x", "$JS.API.STREAM.PURGE.X", "foo"][roll(3)]! });
      expect(() => roll(2) && scan(body)).toSatisfy((f: () => void) => {
        try {
          f();
        } catch (err) {
          return (err as Error).name === "WireError";
        }
        return true;
      });
    }
    await b.nc.flush();
    const m = await b.nc.request(b.subjects.call("ts_add"), '{"a":1,"b":2}');
    expect(m.json()).toEqual({ sum: 3 });
    expect(w.stats().badReply).toBeGreaterThan(0);
  });

  test("a full worker says no, and a drain lets calls end", async () => {
    let free: (v: unknown) => void = () => {};
    const hold = defineTool({ name: "ts_hold" }, () => new Promise((resolve) => (free = resolve)));
    const w = await start([hold], { concurrency: 1 });
    const b = await bus();
    const first = b.nc.request(b.subjects.call("ts_hold"), "", { timeout: 5000 });
    await expect.poll(() => w.stats().running).toBe(1);
    const no = await b.nc.request(b.subjects.call("ts_hold"), "");
    expect([no.headers?.get("Tb-Frame"), no.json<{ kind: string }>().kind]).toEqual(["nack", "overloaded"]);
    const gone = w.shutdown();
    free({ ok: true });
    expect((await first).json()).toEqual({ ok: true });
    await gone;
    await expect(b.nc.request(b.subjects.call("ts_hold"), "")).rejects.toThrow(/responders/i);
  });

  test("npx toolbus run serves a file", async () => {
    const cli = new URL("../dist/cli.js", import.meta.url).pathname;
    const root = new URL("..", import.meta.url).pathname;
    execFileSync("npx", ["tsc", "-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" });
    const child = spawn("node", [cli, "run", "examples/forecast.mjs", "--nats-url", url], {
      cwd: root,
      stdio: ["ignore", "inherit", "pipe"],
    });
    const exit = new Promise<number | null>((resolve) => child.once("exit", resolve));
    ends.push(async () => child.kill("SIGKILL"));
    await new Promise<void>((resolve) =>
      createInterface(child.stderr).on("line", (line) => line.includes('"ready"') && resolve()),
    );
    const out = await (await client()).run({ calls: [{ tool: "forecast", args: { city: "Oslo" } }] });
    expect(out.results[0]!.value).toMatchObject({ city: "Oslo" });
    child.kill("SIGTERM");
    expect(await exit).toBe(0);
    const wrong = (...args: string[]) => {
      try {
        execFileSync("node", [cli, ...args], { cwd: root, stdio: "pipe" });
        return [0, ""];
      } catch (err) {
        const e = err as { status: number; stderr: Buffer };
        return [e.status, e.stderr.toString()];
      }
    };
    expect(wrong("run")).toEqual([2, expect.stringContaining("toolbus run FILE")]);
    expect(wrong("run", "vitest.config.ts")[0]).toBe(2);
    const old = mkdtempSync(join(tmpdir(), "toolbus-ts-"));
    ends.push(async () => rmSync(old, { recursive: true }));
    writeFileSync(join(old, "package.json"), '{"type": "commonjs"}');
    writeFileSync(join(old, "worker.js"), 'import "toolbus";\n');
    expect(wrong("run", join(old, "worker.js"))).toEqual([2, expect.stringContaining("npm pkg set type=module")]);
    expect(wrong("run", "examples/forecast.mjs", "--nats-url", "nats://127.0.0.1:1")).toEqual([
      3,
      expect.stringContaining("cannot connect to NATS"),
    ]);
  });
});

test("a turn that is wrong is refused before it is sent", async () => {
  const c = new Client(undefined as unknown as Bus);
  await expect(c.run({ calls: [] }).catch((err: Fault) => Promise.reject(err))).rejects.toThrow(
    /calls: expected at least one/,
  );
});

function resolvers(): { promise: Promise<unknown>; resolve: (v: unknown) => void } {
  let resolve: (v: unknown) => void = () => {};
  const promise = new Promise((r) => (resolve = r));
  return { promise, resolve };
}

/** Is a die whose rolls the seed decides. */
function dice(seed: number): (sides: number) => number {
  return (sides) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * sides);
  };
}
