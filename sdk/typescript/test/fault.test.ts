import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { Failed, Fault, faultOf, fromHTTP, InvalidArguments, kinds, RateLimited, Upstream } from "../src/index.ts";
import { cutFault, decodeFault, encodeFault } from "../src/wire/faultrecord.ts";

test("the kinds are those of docs/errors.md", () => {
  const page = readFileSync(new URL("../../../docs/errors.md", import.meta.url), "utf8");
  const table = page.split("<!-- kinds -->")[1]!.split("<!-- /kinds -->")[0]!;
  const rows = [...table.matchAll(/^\| `(\w+)` \| (\w+) \| (\w+) \| \w+ \| \w+ \| \S+ \| (\d+) \|$/gm)];
  expect(rows.map(([, kind, cls, run, http]) => [kind, cls, run, Number(http)])).toEqual(
    Object.entries(kinds).map(([kind, s]) => [kind, s.class, s.execution, s.http]),
  );
});

test("a class for every kind", () => {
  const f: RateLimited = new RateLimited("slow down", { retryAfterMs: 1500.2 });
  expect([f.kind, f.name, f.retryAfterMs, f.execution, f instanceof Fault]).toEqual([
    "rate_limited",
    "RateLimited",
    1501,
    "not_started",
    true,
  ]);
  for (const kind of Object.keys(kinds)) expect(Fault.fromRecord({ kind, message: "m" }).constructor).not.toBe(Fault);
  expect(Fault.fromRecord({ kind: "moon_phase", message: "m" }).kind).toBe("moon_phase");
});

const err = (fields: object, message = "it broke") => Object.assign(new Error(message), fields);

test("what others throw is classified", () => {
  const cases: [unknown, string, string?][] = [
    [new Failed("own"), "failed"],
    [err({ cause: new InvalidArguments("inner") }), "invalid_arguments"],
    [new DOMException("late", "TimeoutError"), "timeout"],
    [new DOMException("stop", "AbortError"), "cancelled"],
    [err({ code: "ETIMEDOUT" }), "timeout"],
    [err({ code: "ECONNREFUSED" }), "unavailable"],
    [err({ code: "ECONNRESET" }), "upstream"],
    [err({ cause: err({ code: "ECONNREFUSED" }) }, "fetch failed"), "unavailable"],
    [err({ status: 404 }), "not_found", "404"],
    [err({ statusCode: 503 }), "unavailable", "503"],
    [err({ response: { status: 422 } }), "invalid_arguments", "422"],
    [err({ status: 403 }, "You exceeded a rate limit"), "rate_limited", "403"],
    [err({ status: 200 }), "upstream"],
    [new TypeError("x is not a function"), "upstream"],
    ["a string", "upstream"],
    [undefined, "upstream"],
    [null, "upstream"],
  ];
  for (const [thrown, kind, code = ""] of cases)
    expect([faultOf(thrown).kind, faultOf(thrown).code]).toEqual([kind, code]);
  expect(faultOf(err({ status: 429, headers: new Headers({ "retry-after": "7" }) })).retryAfterMs).toBe(7000);
  expect(faultOf(err({ response: { status: 429, headers: { "retry-after": "2" } } })).retryAfterMs).toBe(2000);
  const loop = err({});
  Object.assign(loop, { cause: loop });
  expect(faultOf(loop).kind).toBe("upstream");
  expect([fromHTTP(200), fromHTTP(418), fromHTTP(599)]).toEqual([undefined, "failed", "upstream"]);
});

test("a fault arrives, cut where it is too long", () => {
  const long = "é".repeat(20_000);
  const cut = cutFault({
    kind: "no kind",
    message: long,
    violations: Array(99).fill({ pointer: long }),
    execution: "x" as "done",
  });
  expect([cut.kind, Buffer.byteLength(cut.message) <= 8192, cut.violations!.length, cut.execution]).toEqual([
    "upstream",
    true,
    50,
    undefined,
  ]);
  const { headers, body } = encodeFault(new Upstream("two\nlines", { retryAfterMs: 5, code: "E1" }).toRecord());
  expect(headers).toEqual({
    "Nats-Service-Error": "two lines",
    "Nats-Service-Error-Code": "500",
    "Tb-Retry-After-Ms": "5",
  });
  const back = decodeFault({ "Tb-Frame": ["error"] }, Buffer.from(body));
  expect([back.kind, back.message, back.code, back.retryAfterMs]).toEqual(["upstream", "two\nlines", "E1", 5]);
  const foreign = decodeFault(
    { "Nats-Service-Error": ["gone"], "Nats-Service-Error-Code": ["404"] },
    Buffer.from("body"),
  );
  expect([foreign.kind, foreign.message, foreign.detail]).toEqual(["not_found", "gone", "body"]);
  expect(decodeFault({ "Tb-Frame": ["nack"] }, Buffer.alloc(0)).execution).toBe("not_started");
});

test("a fault arrives whatever JavaScript put into it", () => {
  const faulty = (options: object) => cutFault(new Failed("m", options).toRecord());
  const usual = faulty({});
  for (const options of [{ suggestions: 5 }, { suggestions: null }, { violations: 7 }, { violations: [null] }])
    expect(faulty(options)).toEqual(usual);
  expect(faulty({ suggestions: "look" }).suggestions).toEqual(["look"]);
  expect(faulty({ code: 42, detail: { a: 1 } })).toMatchObject({ code: "42", detail: "" });
});
