import { readFileSync } from "node:fs";
import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { Bytes, defineTool, digest, type FromJSON, manifestJSON } from "../src/index.ts";
import { parseArgs } from "../src/tool/args.ts";
import { sdkVersion } from "../src/version.ts";

test("the digest of a manifest is that of Go", () => {
  const t = defineTool(
    {
      name: "flight_search",
      version: "2.1.0",
      description: 'Finds flights <b>&\u2028ü "x" \u0001',
      input: {
        type: "object",
        properties: {
          b: { type: "string", description: "é\u2028" },
          a: { type: "integer", minimum: 0.5 },
          10: true,
          9: true,
        },
        required: ["a"],
      },
      output: true,
      effect: "read",
      timeout: 10_000,
      idleTimeout: 3000,
      retry: { maxAttempts: 3, multiplier: 1.5, initialDelayMs: 250 },
      circuitBreaker: { failureThreshold: 3, distinctCalls: true },
      classification: {
        kinds: { not_found: { class: "transient" } },
        codes: { 1000: { class: "permanent" }, 429: { retry: true } },
      },
      keepsKeys: true,
      alternatives: ["x"],
      default: { z: [], flights: null },
      tags: ["travel"],
      annotations: { owner: "t", 10: "a", 9: "b" },
    },
    () => ({}),
  );
  // Both by tool.Manifest in Go.
  expect(t.digest).toBe("d488c29c10fed6d58e7766e22d96b298");
  const e = defineTool({ name: "echo" }, (args) => args);
  expect([manifestJSON(e.manifest), digest(e.manifest)]).toEqual(['{"id":"echo"}', "e8bbe6ab6ed854c5084e184a795fac97"]);
});

describe("schemas", () => {
  test("of zod give types, JSON Schema, defaults and violations", async () => {
    const t = defineTool(
      {
        name: "t",
        input: z.object({ n: z.int(), unit: z.enum(["c", "f"]).default("c") }),
        output: z.object({ m: z.number() }),
      },
      (args) => {
        expectTypeOf(args).toEqualTypeOf<{ n: number; unit: "c" | "f" }>();
        return { m: args.n };
      },
    );
    expect(t.manifest.inputSchema!.json()).toMatchObject({
      type: "object",
      properties: { n: { type: "integer" } },
      required: ["n"],
    });
    expect(await t.input.validate({ n: 1 })).toEqual({ value: { n: 1, unit: "c" } });
    const bad = await t.input.validate({ n: "x", unit: "k" });
    expect("violations" in bad && bad.violations.map((v) => v.pointer)).toEqual(["/n", "/unit"]);
  });

  test("in JSON give types and every violation", async () => {
    const t = defineTool(
      {
        name: "t",
        input: {
          type: "object",
          properties: {
            a: { type: "integer" },
            "b/c": { enum: ["x", "y"] },
            list: { type: "array", items: { type: "string" } },
          },
          required: ["a", "list"],
          additionalProperties: false,
        },
      },
      (args) => {
        expectTypeOf(args).toEqualTypeOf<{ a: number; list: string[]; "b/c"?: "x" | "y" }>();
        return args.a;
      },
    );
    const r = await t.input.validate({ "b/c": "z", list: ["a", 1], d: 1 });
    expect("violations" in r && r.violations).toEqual([
      { pointer: "/a", expected: "a value", got: "missing" },
      { pointer: "/b~1c", expected: '"x" or "y"', got: 'string "z"' },
      { pointer: "/d", expected: "a known property", got: "unknown property" },
      { pointer: "/list/1", expected: "string", got: "number 1" },
    ]);
    expectTypeOf<FromJSON<{ type: "object" }>>().toEqualTypeOf<Record<string, unknown>>();
  });

  test("that are wrong are refused with a sentence", () => {
    const make = (options: object) => () => defineTool({ name: "t", ...options }, () => null);
    expect(make({ name: "a b" })).toThrow(/tool name/);
    expect(make({ name: "_turn" })).toThrow(/reserved/);
    expect(make({ input: { type: "nonsense" } })).toThrow(/input: the JSON Schema is wrong/);
    expect(make({ input: { type: "string" } })).toThrow(/schema of an object/);
    expect(make({ timeout: 0 })).toThrow(/timeout: expected milliseconds/);
    expect(make({ effect: "reads" })).toThrow(/effect: expected read/);
    const noJSON = {
      "~standard": { version: 1, vendor: "plainlib", validate: (value: unknown) => ({ value }) },
    } as const;
    expect(make({ input: noJSON })).toThrow(/plainlib gives no JSON Schema/);
    expect(make({ input: noJSON, inputJSONSchema: { type: "object" } })).not.toThrow();
  });
});

test("arguments are one JSON object, read strictly", () => {
  const read = (s: string | Uint8Array) => {
    try {
      return parseArgs(typeof s === "string" ? Buffer.from(s) : s);
    } catch (err) {
      return (err as { kind: string }).kind;
    }
  };
  for (const empty of ["", "  ", "null", " null\n"]) expect(read(empty)).toEqual({});
  expect(read('{"a":[1,-2.5e3,true,"\\u00e9\\n"]}')).toEqual({ a: [1, -2500, true, "é\n"] });
  expect(Object.keys(read('{"__proto__":1}') as object)).toEqual(["__proto__"]);
  for (const cut of [
    '{"a":1',
    '{"a',
    '{"a":"b\\',
    '{"a":"b\\u0',
    "{",
    '{"a":[1,',
    '{"a":tr',
    '{"a":-',
    '{"a":',
    '{"a":1,',
  ]) {
    expect([cut, read(cut)]).toEqual([cut, "truncated_call"]);
  }
  const wrong = [
    "[]",
    '"x"',
    "1",
    "{}x",
    "{a:1}",
    '{"a":01}',
    '{"a":1,}',
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
    '{"a":\n"\n"}',
    '{"a":nul1}',
    "x",
  ];
  for (const bad of [...wrong, `{"a":${"[".repeat(64)}${"]".repeat(64)}}`])
    expect([bad, read(bad)]).toEqual([bad, "invalid_arguments"]);
  expect(read(`{"a":${"[".repeat(63)}${"]".repeat(63)}}`)).toHaveProperty("a");
  expect(read(Buffer.from([0x7b, 0xff, 0x7d]))).toBe("invalid_arguments");
});

test("the version is that of the package", () => {
  expect(JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version).toBe(sdkVersion);
});

test("bytes have a content type", () => {
  expect(new Bytes(new Uint8Array(1)).contentType).toBe("application/octet-stream");
});
