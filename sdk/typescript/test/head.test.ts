// What is read in one go must be what is read with care.

import { headers, type Msg } from "@nats-io/nats-core";
import { describe, expect, inject, test } from "vitest";
import { headerBlock } from "../src/bus/block.ts";
import { connect } from "../src/index.ts";
import { type Head, headOf, plainHead } from "../src/wire/head.ts";
import { checkHeader, fromNats } from "../src/wire/headers.ts";

const MsgHdrs = headers().constructor as unknown as { decode(block: Uint8Array): ReturnType<typeof headers> };
const slowly = (block: string): Head => headOf(fromNats(MsgHdrs.decode(Buffer.from(block, "latin1"))));
const plain = ({ call, timeout, key, session, tool, progress, frame, blob, contentType, all }: Head) => ({
  ...{ call, timeout, key, session, tool, progress, frame, blob, contentType },
  all: Object.entries(all),
});
const block = (...lines: string[]) => `NATS/1.0\r\n${lines.map((line) => `${line}\r\n`).join("")}\r\n`;

test("a usual call is read in one go", () => {
  const h = plainHead(block("Tb-Call: t/c/1", "Tb-Timeout-Ms:  500 ", "x-own: a", "x-own:b", "__proto__: c"));
  expect(h).toMatchObject({ call: "t/c/1", timeout: "500", key: "", checked: true });
  expect(Object.entries(h!.all)).toContainEqual(["x-own", ["a", "b"]]);
  expect(h!.all).toBe(h!.all);
  expect(plainHead("")).toMatchObject({ call: "", frame: "" });
});

test.each([
  ["Tb-Call: ", "no value"],
  ["tb-call: t/c/1", "other letters"],
  ["Nats-Expected-Stream: x", "for the server"],
  ["Tb-Key: é", "not ASCII"],
  ["Tb-Key: a\tb", "a control character"],
  ["no colon", "no header"],
  ["a b: c", "a blank in the name"],
  [`x: ${"y".repeat(5000)}`, "long"],
])("%j is left to those with care: %s", (line) => {
  expect(plainHead(block("Tb-Timeout-Ms: 1", line))).toBeUndefined();
});

test("what is twice is left to those with care, and so is a status", () => {
  expect(plainHead(block("Tb-Key: a", "Tb-Key: b"))).toBeUndefined();
  expect(plainHead("NATS/1.0 503\r\n\r\n")).toBeUndefined();
  expect(plainHead(undefined)).toBeUndefined();
});

test("random blocks are read alike", () => {
  const seed = Number(process.env["TOOLBUS_SEED"] ?? Date.now() % 1_000_000);
  console.log(`seed ${seed} (TOOLBUS_SEED)`);
  let state = seed;
  const roll = (sides: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * sides);
  };
  const of = <T>(...all: T[]): T => all[roll(all.length)]!;
  const names = ["Tb-Call", "Tb-Key", "Tb-Tool", "Tb-Frame", "Tb-Blob", "Content-Type", "traceparent", "x", "X-Own"];
  let taken = 0;
  for (let i = 0; i < 5000; i++) {
    const line = () => {
      const name = roll(30) ? of(...names) : of("tb-key", "NATS-x", "é", "", "a b", "constructor", "__proto__");
      const value = roll(30) ? of("a", "t/c/1", "a b", "1:2") : of("", "  ", "é", "a\r", "\0", "\u00a0x");
      return `${name}${roll(40) ? ":" : ""}${of("", " ", "  ")}${value}${of("", " ")}`;
    };
    const b = block(...Array.from({ length: roll(5) }, line)).slice(0, roll(50) ? undefined : -1 - roll(9));
    const quick = plainHead(b);
    if (!quick) continue;
    taken++;
    const care = slowly(b);
    expect([seed, b, plain(quick)]).toEqual([seed, b, plain(care)]);
    checkHeader(care.all);
  }
  expect(taken).toBeGreaterThan(1000);
});

describe.skipIf(!inject("url"))("on a server", () => {
  test("the client keeps header bytes where we look for them", async () => {
    const bus = await connect({ url: inject("url") });
    try {
      const got: (string | undefined)[] = [];
      bus.nc.subscribe("ts_block", { callback: (_, m: Msg) => void got.push(headerBlock(m)) });
      const h = headers();
      h.append("Tb-Call", "t/c/1");
      h.append("x", "é");
      bus.nc.publish("ts_block", "body", { headers: h });
      bus.nc.publish("ts_block", "x".repeat(300_000), { headers: h }); // comes in pieces
      bus.nc.publish("ts_block", "body");
      await bus.nc.flush();
      const want = block("Tb-Call: t/c/1", `x: ${Buffer.from("é").toString("latin1")}`);
      expect(got).toEqual([want, want, ""]);
    } finally {
      await bus.close();
    }
  });
});

test("a client that keeps them elsewhere is asked the slow way", () => {
  expect(headerBlock({} as Msg)).toBeUndefined();
  expect(headerBlock({ _msg: { hdr: 9 }, _rdata: new Uint8Array(3) } as unknown as Msg)).toBeUndefined();
});
