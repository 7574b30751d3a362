import { expect, test, vi } from "vitest";
import { parseArgs } from "../src/tool/args.ts";
import { jsonFlaw, quickJSON } from "../src/wire/strictjson.ts";

test("everyday JSON is read in one go", () => {
  for (const text of [
    '{"city":"Oslo","days":3}',
    '{ "at" : "12:30:00", "url": "http://x/y?a=\\"b\\"" }',
    '[{"a":{"b":[]}},{"a":null}]',
    '{"a":{"a":1},"b":{"a":1}}',
    '{"__proto__":1,"constructor":2}',
    '"a"',
  ]) {
    expect(quickJSON(text)).toEqual(JSON.parse(text));
  }
});

test("what has a flaw is not", () => {
  const deep = (n: number) => `${"[".repeat(n)}${"]".repeat(n)}`;
  for (const text of ['{"a":1,"a" : 2}', '{"a":1,"\\u0061":2}', '{"__proto__":1,"__proto__":2}', "{", "", deep(65)])
    expect([text, quickJSON(text)]).toEqual([text, undefined]);
  expect(quickJSON(deep(64))).toBeDefined();
});

test("what nests too deep is not built first", () => {
  const parse = vi.spyOn(JSON, "parse");
  try {
    const deep = Buffer.from(`${"[".repeat(1 << 20)}${"]".repeat(1 << 20)}`);
    expect(() => parseArgs(deep)).toThrow("nested deeper than 64");
    expect(parse).not.toHaveBeenCalled();
  } finally {
    parse.mockRestore();
  }
  const long = { text: "x".repeat(100_000), a: [{ b: 1 }] };
  expect(parseArgs(Buffer.from(JSON.stringify(long)))).toEqual(long);
});

test("random texts: what is read in one go has no flaw", () => {
  const seed = Number(process.env["TOOLBUS_SEED"] ?? Date.now() % 1_000_000);
  console.log(`seed ${seed} (TOOLBUS_SEED)`);
  let state = seed;
  const roll = (sides: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * sides);
  };
  const of = (...all: string[]) => all[roll(all.length)]!;
  const blank = () => of("", "", "", " ", "\n\t");
  const string = () => of('"a"', '"b"', '"\\u0061"', '"a\\":"', '"::"', '"\\" :"', '"__proto__"');
  const value = (depth: number): string => {
    const inside = Array.from({ length: depth > 3 ? 0 : roll(4) }, () => value(depth + 1));
    switch (roll(5)) {
      case 0:
        return `[${inside.join(`${blank()},${blank()}`)}]`;
      case 1:
      case 2:
        return `{${inside.map((v) => `${blank()}${string()}${blank()}:${blank()}${v}`).join(",")}${blank()}}`;
      case 3:
        return string();
      default:
        return of("1", "-2.5e3", "true", "null", "01", "x");
    }
  };
  let read = 0;
  for (let i = 0; i < 5000; i++) {
    const text = value(0);
    const quick = quickJSON(text);
    if (quick === undefined) continue;
    read++;
    expect([seed, text, jsonFlaw(text)]).toEqual([seed, text, undefined]);
    expect([seed, text, quick]).toEqual([seed, text, JSON.parse(text)]);
  }
  expect(read).toBeGreaterThan(500);
});
