// The golden vectors of wire/testdata, the same for every language.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import * as wire from "../src/wire/index.ts";

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../../wire/testdata/${name}`, import.meta.url), "utf8"));

const codecs: Record<string, wire.Codec<any>> = {
  heartbeat: wire.heartbeatCodec,
  turn_request: wire.turnRequestCodec,
  turn_control: wire.turnControlCodec,
  turn_reply: wire.turnReplyCodec,
  late_query: wire.lateQueryCodec,
  late_record: wire.lateRecordCodec,
  trace_query: wire.traceQueryCodec,
  page: wire.pageCodec,
  progress: wire.progressCodec,
  fault: wire.faultCodec,
  describe: wire.describeCodec,
  event: wire.eventCodec,
  outcome: wire.outcomeCodec,
};

/** The code with which f is refused, or "". */
function refusal(f: () => unknown): string {
  try {
    f();
    return "";
  } catch (err) {
    if (err instanceof wire.WireError) return err.code;
    throw err;
  }
}

for (const v of read("records.json")) {
  test(`record: ${v.name}`, () => {
    const codec = codecs[v.type]!;
    const packed = Buffer.from(v.msgpack_hex, "hex");
    const text = Buffer.from(v.json);
    for (const [bytes, type] of [
      [packed, wire.msgpack],
      [text, wire.json],
    ] as const) {
      const record = codec.read(bytes, type);
      expect(codec.read(bytes)).toEqual(record);
      expect(Buffer.from(codec.pack(record)).toString("hex")).toBe(v.msgpack_hex);
      expect(codec.json(record)).toBe(v.json);
      for (let cut = 0; cut < bytes.length; cut++) {
        if (refusal(() => codec.read(bytes.subarray(0, cut), type)) === "")
          throw new Error(`its first ${cut} bytes are taken`);
      }
      expect(refusal(() => codec.read(Buffer.concat([bytes, Buffer.from("x")]), type))).not.toBe("");
    }
  });
}

test("hostile", () => {
  for (const v of read("hostile.json")) {
    const head = Buffer.from(v.hex, "hex");
    const repeat = v.repeat ?? 1;
    const bytes = Buffer.concat([Buffer.alloc(head.length * repeat, head), Buffer.from(v.tail_hex ?? "", "hex")]);
    const [into, checked] = v.into.startsWith("checked ") ? [v.into.slice(8), true] : [v.into, false];
    const got = refusal(() => {
      if (into === "scan") return wire.scan(bytes);
      const record = codecs[into]!.read(bytes, wire.msgpack);
      if (checked) codecs[into]!.check(record);
    });
    expect([v.name, got]).toEqual([v.name, v.code]);
  }
});

test("subjects", () => {
  const v = read("subjects.json");
  for (const p of v.prefixes.good) expect(refusal(() => new wire.Subjects(p))).toBe("");
  for (const p of v.prefixes.bad) expect(refusal(() => new wire.Subjects(p))).toBe("name");
  for (const s of v.subjects) {
    const method = (s.method[0].toLowerCase() + s.method.slice(1)) as "call";
    expect((new wire.Subjects(s.prefix)[method] as (...args: string[]) => string)(...s.args)).toBe(s.subject);
  }
  const subjects = new wire.Subjects();
  for (const r of v.parse_reply) expect(subjects.parseReply(r.subject) ?? []).toEqual(r.parts);
  for (const r of v.tool_of) expect(subjects.toolOf(r.subject)).toBe(r.ok ? r.parts[0] : undefined);
  for (const r of v.turn_of ?? []) expect(subjects.turnOf(r.subject)).toBe(r.ok ? r.parts[0] : undefined);
  for (const r of v.reply_rule) {
    const rule = new wire.ReplyRule(new wire.Subjects(r.prefix ?? ""), ...(r.extra ?? []));
    expect([r, rule.allows(r.reply, r.tool)]).toEqual([r, r.allow]);
  }
});

test("call references and claim checks", () => {
  const calls = read("callrefs.json");
  for (const v of calls.good) {
    const ref = wire.parseCallRef(v.text);
    expect({ text: wire.formatCallRef(ref), key: wire.callKey(ref), ...ref }).toEqual(v);
  }
  for (const text of calls.bad) expect(refusal(() => wire.parseCallRef(text))).toBe("call_ref");
  const blobs = read("blobref.json");
  for (const v of blobs.good) {
    const ref = wire.parseBlobRef(v.text);
    expect({ text: wire.formatBlobRef(ref), ...ref }).toEqual(v);
  }
  for (const text of blobs.bad) expect(refusal(() => wire.parseBlobRef(text))).toBe("blob_ref");
});

test("headers", () => {
  const v = read("headers.json");
  for (const g of v.get) expect(wire.get(g.header, g.name)).toBe(g.value);
  for (const s of v.set) expect([s.name, refusal(() => wire.checkPair(s.name, s.value))]).toEqual([s.name, s.code]);
  for (const c of v.content_type) expect(wire.codecOf(c.header) ?? "").toBe(c.type);
  for (const f of v.frame) {
    expect(wire.frameOf(f.header)).toBe(f.frame);
    expect(wire.ends(f.frame)).toBe(f.ends);
  }
  for (const i of v.inbound) expect(Object.keys(wire.inbound(i.header)).sort()).toEqual([...i.left].sort());
  for (const f of v.filter) expect(Object.keys(wire.filter(f.header)).sort()).toEqual([...f.left].sort());
});
