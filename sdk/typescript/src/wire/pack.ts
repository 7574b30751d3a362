// Records as MessagePack. By hand and led by the record's type, because the bytes are the same in every language: the
// fields in their order, keys of maps by their bytes (an object in JavaScript puts "429" before "1000"), whole numbers
// as short as they go. Nothing is built of what the record does not know, so "__proto__" is a key like any other.
// Payloads, which may be anything, are for @msgpack/msgpack.

import { WireError } from "./error.ts";
import { maxInt } from "./limits.ts";
import { type Item, readItem, readNumber, scan, view } from "./scan.ts";
import { type Bag, byBytes, fill, leftOut, Raw, type Shape, type Type, zero } from "./types.ts";

/** Bounds every list in a record: an element takes one byte on the wire and some hundred when it is decoded. */
export const maxItems = 10_000;

/** Is a record as MessagePack. It throws a WireError for what a reader would refuse. */
export function pack(shape: Shape, value: object): Uint8Array {
  const out = new Writer();
  out.record(shape, value as Bag);
  const bytes = out.bytes();
  scan(bytes, { values: shape.values, items: maxItems });
  return bytes;
}

class Writer {
  private buf = Buffer.allocUnsafe(512);
  private n = 0;

  bytes = (): Uint8Array => this.buf.subarray(0, this.n);

  record(shape: Shape, bag: Bag): void {
    const fields = shape.fields.filter((f) => !leftOut(f, bag[f.key]));
    this.head(0x80, 15, 0xde, fields.length);
    for (const f of fields) {
      this.text(f.wire);
      this.value(f.type, bag[f.key] ?? zero(f.type));
    }
  }

  private value(type: Type, v: unknown): void {
    switch (type.is) {
      case "text":
      case "join":
        return this.text(String(v));
      case "int":
      case "num":
        return this.number(v as number);
      case "bool":
        return this.byte(v ? 0xc3 : 0xc2);
      case "raw":
        return this.blob(0xc4, (v as Raw).bytes);
      case "list":
        this.head(0x90, 15, 0xdc, (v as unknown[]).length);
        for (const item of v as unknown[]) this.value(type.of, item);
        return;
      case "map": {
        const keys = Object.keys(v as Bag).sort(byBytes);
        this.head(0x80, 15, 0xde, keys.length);
        for (const key of keys) {
          this.text(key);
          this.value(type.of, (v as Bag)[key]);
        }
        return;
      }
      case "record":
        return this.record(type.record, v as Bag);
    }
  }

  private number(n: number): void {
    if (typeof n !== "number" || (Number.isInteger(n) && Math.abs(n) > maxInt)) {
      throw new WireError("number", `expected a number within ±2^53, got ${n}`);
    }
    if (!Number.isInteger(n)) {
      this.byte(0xcb);
      this.n = this.room(8).writeDoubleBE(n, this.n);
    } else if (n >= 0) {
      if (n < 0x80) this.byte(n);
      else if (n < 0x100) this.bytes1(0xcc, n);
      else if (n < 0x10000) this.n = this.code(0xcd, 2).writeUInt16BE(n, this.n);
      else if (n < 2 ** 32) this.n = this.code(0xce, 4).writeUInt32BE(n, this.n);
      else this.n = this.code(0xcf, 8).writeBigUInt64BE(BigInt(n), this.n);
    } else if (n >= -32) this.byte(n & 0xff);
    else if (n >= -0x80) this.bytes1(0xd0, n & 0xff);
    else if (n >= -0x8000) this.n = this.code(0xd1, 2).writeInt16BE(n, this.n);
    else if (n >= -(2 ** 31)) this.n = this.code(0xd2, 4).writeInt32BE(n, this.n);
    else this.n = this.code(0xd3, 8).writeBigInt64BE(BigInt(n), this.n);
  }

  private text(s: string): void {
    const b = Buffer.from(s); // half of a surrogate pair becomes U+FFFD
    if (b.length < 32) this.byte(0xa0 | b.length);
    else return this.blob(0xd9, b);
    this.room(b.length).set(b, this.n);
    this.n += b.length;
  }

  private blob(code: number, b: Uint8Array): void {
    if (b.length < 0x100) this.bytes1(code, b.length);
    else if (b.length < 0x10000) this.n = this.code(code + 1, 2).writeUInt16BE(b.length, this.n);
    else this.n = this.code(code + 2, 4).writeUInt32BE(b.length, this.n);
    this.room(b.length).set(b, this.n);
    this.n += b.length;
  }

  private head(fix: number, most: number, code: number, count: number): void {
    if (count <= most) this.byte(fix | count);
    else if (count < 0x10000) this.n = this.code(code, 2).writeUInt16BE(count, this.n);
    else this.n = this.code(code + 1, 4).writeUInt32BE(count, this.n);
  }

  private byte(c: number): void {
    this.room(1)[this.n++] = c;
  }

  private bytes1(code: number, c: number): void {
    this.byte(code);
    this.byte(c);
  }

  private code(code: number, more: number): Buffer {
    this.byte(code);
    return this.room(more);
  }

  private room(n: number): Buffer {
    if (this.n + n > this.buf.length) {
      const larger = Buffer.allocUnsafe(Math.max(2 * this.buf.length, this.n + n));
      this.buf.copy(larger, 0, 0, this.n);
      this.buf = larger;
    }
    return this.buf;
  }
}

/** Reads a record from MessagePack, scanned first. It throws a WireError. */
export function unpack(shape: Shape, bytes: Uint8Array): Bag {
  scan(bytes, { values: shape.values, items: maxItems });
  const r = new Reader(bytes);
  const t = r.item();
  if (t.kind !== "map") throw new WireError("type", `expected a map, got MessagePack code 0x${bytes[0]!.toString(16)}`);
  return r.record(shape, t);
}

class Reader {
  private readonly bytes: Uint8Array;
  private readonly view: DataView;
  private i = 0; // of the next item
  private at = 0; // of the current one

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.view = view(bytes);
  }

  item(): Item {
    const t = readItem(this.view, this.i);
    this.at = this.i;
    this.i = t.kind === "array" || t.kind === "map" ? t.body : t.body + t.n;
    return t;
  }

  record(shape: Shape, head: Item): Bag {
    const bag: Bag = {};
    for (let left = head.n / 2; left > 0; left--) {
      const f = shape.byWire.get(this.string(this.item()));
      if (!f) {
        this.skip();
        continue;
      }
      const v = this.value(f.type, `${shape.name}.${f.wire}`);
      if (v === undefined) delete bag[f.key];
      else bag[f.key] = v;
    }
    return fill(shape, bag);
  }

  private value(type: Type, where: string): unknown {
    const t = this.item();
    if (t.kind === "nil") return undefined;
    const wrong = (want: string) => new WireError("type", `${where}: expected ${want}, got MessagePack ${t.kind}`);
    switch (type.is) {
      case "text":
      case "join":
        if (t.kind !== "str") throw wrong("text");
        return this.string(t);
      case "int":
      case "num": {
        if (t.kind !== "uint" && t.kind !== "int" && t.kind !== "float") throw wrong("a number");
        const n = readNumber(this.view, this.at, t);
        if (type.is === "int" && !(Number.isInteger(n) && Math.abs(n) <= maxInt)) throw wrong("a whole number");
        return n;
      }
      case "bool":
        if (t.kind !== "true" && t.kind !== "false") throw wrong("true or false");
        return t.kind === "true";
      case "raw":
        if (t.kind !== "bin" && t.kind !== "str") throw wrong("bytes");
        return new Raw(this.bytes.subarray(t.body, t.body + t.n));
      case "list": {
        if (t.kind !== "array") throw wrong("a list");
        const list = [];
        for (let n = t.n; n > 0; n--) list.push(this.value(type.of, where) ?? zero(type.of));
        return list;
      }
      case "map": {
        if (t.kind !== "map") throw wrong("a map");
        const map: Bag = Object.create(null);
        for (let n = t.n / 2; n > 0; n--) {
          const key = this.string(this.item());
          map[key] = this.value(type.of, where) ?? zero(type.of);
        }
        return map;
      }
      case "record":
        if (t.kind !== "map") throw wrong("a map");
        return this.record(type.record, t);
    }
  }

  private string(t: Item): string {
    return Buffer.from(this.bytes.buffer, this.bytes.byteOffset + t.body, t.n).toString();
  }

  /** Goes past one value, of a depth that the scan has seen. */
  private skip(): void {
    for (let left = 1; left > 0; left--) {
      const t = this.item();
      if (t.kind === "array" || t.kind === "map") left += t.n;
    }
  }
}
