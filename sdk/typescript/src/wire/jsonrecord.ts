// Records as JSON: for people, and read wherever MessagePack is. What is raw stands as it is, blanks dropped.

import { isUtf8 } from "node:buffer";
import { WireError } from "./error.ts";
import { isJSON } from "./headers.ts";
import { maxDepth, maxInt } from "./limits.ts";
import { maxItems } from "./pack.ts";
import { jsonString, truncate } from "./text.ts";
import { type Bag, byBytes, type Field, fill, leftOut, Raw, type Shape, type Type, zero } from "./types.ts";

/** Is a record as JSON. */
export function writeJSON(shape: Shape, value: object): string {
  const bag = value as Bag;
  const parts = shape.fields
    .filter((f) => !leftOut(f, bag[f.key]))
    .map((f) => `"${f.wire}":${coded(shape, f, bag) ?? write(f.type, bag[f.key] ?? zero(f.type))}`);
  if (shape.coded && isCoded(bag)) parts.push('"encoding":"base64"');
  return `{${parts.join(",")}}`;
}

/** Is the value of a result as base64, where it is not JSON. */
function coded(shape: Shape, f: Field, bag: Bag): string | undefined {
  if (!shape.coded || f.key !== "value" || !isCoded(bag)) return undefined;
  return `"${Buffer.from((bag["value"] as Raw).bytes).toString("base64")}"`;
}

function isCoded(bag: Bag): boolean {
  const value = bag["value"] as Raw | undefined;
  if (!value || value.bytes.length === 0) return false;
  if (!isJSON((bag["contentType"] as string | undefined) ?? "")) return true;
  try {
    value.json();
    return false;
  } catch {
    return true;
  }
}

function write(type: Type, v: unknown): string {
  switch (type.is) {
    case "text":
    case "join":
      return jsonString(String(v));
    case "int":
    case "num":
      return number(v as number);
    case "bool":
      return v ? "true" : "false";
    case "raw":
      return compact((v as Raw).toString());
    case "list":
      return `[${(v as unknown[]).map((item) => write(type.of, item)).join(",")}]`;
    case "map":
      return `{${Object.keys(v as Bag)
        .sort(byBytes)
        .map((key) => `${jsonString(key)}:${write(type.of, (v as Bag)[key])}`)
        .join(",")}}`;
    case "record":
      return writeJSON(type.record, v as Bag);
  }
}

function number(n: number): string {
  if (!Number.isFinite(n) || (Number.isInteger(n) && Math.abs(n) > maxInt)) {
    throw new WireError("number", `expected a number within ±2^53, got ${n}`);
  }
  return JSON.stringify(n);
}

/** Is JSON without the blanks between its tokens. */
export function compact(json: string): string {
  return json.replace(/("(?:[^"\\]|\\.)*")|[ \t\r\n]+/g, (_, string: string | undefined) => string ?? "");
}

/** Reads a record from JSON. Keys are taken in any case. It throws a WireError. */
export function readJSON(shape: Shape, bytes: Uint8Array): Bag {
  const blank = /^[ \t\r\n]*$/;
  if (!isUtf8(bytes)) throw new WireError("utf8", "the JSON is not UTF-8");
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString();
  if (blank.test(text)) throw new WireError("empty", "expected a JSON object, got nothing");
  checkDepth(text);
  try {
    JSON.parse(text);
  } catch (err) {
    throw new WireError("json", `decode JSON: ${truncate((err as Error).message, 200)}`);
  }
  const r = new Reader(text, shape.values);
  if (r.next() !== "{") throw new WireError("json", `expected a JSON object, got ${truncate(text, 20)}`);
  return r.record(shape);
}

function checkDepth(text: string): void {
  let depth = 0;
  for (const m of text.matchAll(/"(?:[^"\\]|\\.)*"|[[{]|[\]}]/gs)) {
    const c = m[0][0];
    if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") depth--;
    if (depth > maxDepth)
      throw new WireError("too_deep", `objects and arrays are nested too deep, at character ${m.index}`);
  }
}

/** Goes through JSON that is known to be right. */
class Reader {
  private readonly s: string;
  private i = 0;
  private left: number;

  constructor(s: string, values: number) {
    this.s = s;
    this.left = values;
  }

  next(): string {
    while (" \t\r\n".includes(this.s[this.i]!)) this.i++;
    return this.s[this.i]!;
  }

  record(shape: Shape): Bag {
    const bag: Bag = {};
    let encoding = "";
    this.members("}", () => {
      const key = this.key();
      if (shape.coded && key === "encoding") {
        encoding = (this.value({ is: "text" }, "encoding") as string | undefined) ?? "";
        return;
      }
      const f = shape.byWire.get(key) ?? shape.byWire.get(key.toLowerCase());
      if (!f) {
        this.skip();
        return;
      }
      const v = this.value(f.type, `${shape.name}.${f.wire}`);
      if (v === undefined) delete bag[f.key];
      else bag[f.key] = v;
    });
    if (encoding === "base64")
      bag["value"] = new Raw(Buffer.from(String((bag["value"] as Raw | undefined)?.json() ?? ""), "base64"));
    else if (encoding !== "")
      throw new WireError("type", `${shape.name}.encoding: expected base64 or nothing, got ${truncate(encoding, 40)}`);
    return fill(shape, bag);
  }

  private value(type: Type, where: string): unknown {
    const c = this.next();
    const from = this.i;
    if (type.is === "raw") {
      this.skip();
      return Raw.text(compact(this.s.slice(from, this.i)));
    }
    if (c === "n") {
      this.i += 4;
      return undefined;
    }
    const wrong = (want: string) =>
      new WireError("type", `${where}: expected ${want}, got JSON ${truncate(this.s.slice(from, from + 40), 40)}`);
    switch (type.is) {
      case "text":
      case "join":
        this.skip();
        if (c === '"') return JSON.parse(this.s.slice(from, this.i));
        if (type.is === "join" && /[-0-9]/.test(c)) return this.s.slice(from, this.i);
        throw wrong("text");
      case "int":
      case "num": {
        this.skip();
        const raw = this.s.slice(from, this.i);
        const n = Number(raw);
        if (!/^[-0-9]/.test(raw) || (type.is === "int" && !/^-?[0-9]+$/.test(raw)))
          throw wrong(type.is === "int" ? "a whole number" : "a number");
        if (type.is === "int" && (BigInt(raw) > maxInt || BigInt(raw) < -maxInt))
          throw new WireError("number", `${where}: ${raw} is beyond ±2^53`);
        return n;
      }
      case "bool":
        this.skip();
        if (c !== "t" && c !== "f") throw wrong("true or false");
        return c === "t";
      case "list": {
        if (c !== "[") throw wrong("a list");
        const list: unknown[] = [];
        this.members("]", () => {
          if (--this.left < 0 || list.length === maxItems)
            throw new WireError("too_many", `${where}: too many values in the lists of one record`);
          list.push(this.value(type.of, where) ?? zero(type.of));
        });
        return list;
      }
      case "map": {
        if (c !== "{") throw wrong("a map");
        const map: Bag = Object.create(null);
        this.members("}", () => {
          if (--this.left < 0) throw new WireError("too_many", `${where}: too many values in the lists of one record`);
          const key = this.key();
          map[key] = this.value(type.of, where) ?? zero(type.of);
        });
        return map;
      }
      case "record":
        if (c !== "{") throw wrong("a map");
        return this.record(type.record);
    }
  }

  private members(end: string, each: () => void): void {
    this.i++;
    while (this.next() !== end) {
      each();
      if (this.next() === ",") this.i++;
    }
    this.i++;
  }

  private key(): string {
    this.next();
    const from = this.i;
    this.skip();
    const key = JSON.parse(this.s.slice(from, this.i)) as string;
    this.next();
    this.i++; // the colon
    return key;
  }

  /** Goes past one value. */
  private skip(): void {
    const token = /"(?:[^"\\]|\\.)*"|[[{]|[\]}]|[^[\]{}",: \t\r\n]+/gs;
    token.lastIndex = this.i;
    for (let depth = 0; ; ) {
      const m = token.exec(this.s)!;
      const c = m[0][0];
      if (c === "{" || c === "[") depth++;
      else if (c === "}" || c === "]") depth--;
      if (depth > 0) continue;
      this.i = token.lastIndex;
      return;
    }
  }
}
