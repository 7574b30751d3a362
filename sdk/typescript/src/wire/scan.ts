import { isUtf8 } from "node:buffer";
import { WireError } from "./error.ts";
import { maxDepth, maxInt } from "./limits.ts";

/** The bounds of a scan. */
export interface ScanLimits {
  /** Of containers in each other. Default 32, at most 64. */
  depth?: number;
  /** Of everything, containers and keys included. Default 10,000. */
  values?: number;
  /** Of one array. Default: as many as values. */
  items?: number;
  /** Takes also integers beyond ±2^53, NaN and infinities: for payloads, which are the tool's own business. */
  anyNumber?: boolean;
}

/** Families of MessagePack codes. */
export type Kind = "nil" | "false" | "true" | "uint" | "int" | "float" | "bin" | "str" | "array" | "map";

/** One code with what belongs to it. For a container that is its head, and n counts keys and values. */
export interface Item {
  kind: Kind;
  body: number;
  n: number;
}

const sized: Record<number, [Kind, number]> = {
  196: ["bin", 1],
  197: ["bin", 2],
  198: ["bin", 4],
  217: ["str", 1],
  218: ["str", 2],
  219: ["str", 4],
  220: ["array", 2],
  221: ["array", 4],
  222: ["map", 2],
  223: ["map", 4],
};
const fixed: Record<number, [Kind, number]> = {
  192: ["nil", 0],
  194: ["false", 0],
  195: ["true", 0],
  202: ["float", 4],
  203: ["float", 8],
  204: ["uint", 1],
  205: ["uint", 2],
  206: ["uint", 4],
  207: ["uint", 8],
  208: ["int", 1],
  209: ["int", 2],
  210: ["int", 4],
  211: ["int", 8],
};

/** Reads the code at b[i] and its length, and checks that as much is left. It throws a WireError. */
export function readItem(b: DataView, i: number): Item {
  if (i >= b.byteLength) throw new WireError("truncated", `the value ends too early, at byte ${i}`);
  const c = b.getUint8(i);
  let t: Item;
  if (c < 0x80) t = { kind: "uint", body: i + 1, n: 0 };
  else if (c >= 0xe0) t = { kind: "int", body: i + 1, n: 0 };
  else if (c < 0x90) t = { kind: "map", body: i + 1, n: 2 * (c & 15) };
  else if (c < 0xa0) t = { kind: "array", body: i + 1, n: c & 15 };
  else if (c < 0xc0) t = { kind: "str", body: i + 1, n: c & 31 };
  else if (fixed[c]) t = { kind: fixed[c][0], body: i + 1, n: fixed[c][1] };
  else if (sized[c]) {
    const [kind, length] = sized[c];
    if (i + 1 + length > b.byteLength) throw new WireError("truncated", `the value ends within a length, at byte ${i}`);
    const n = length === 1 ? b.getUint8(i + 1) : length === 2 ? b.getUint16(i + 1) : b.getUint32(i + 1);
    t = { kind, body: i + 1 + length, n: kind === "map" ? 2 * n : n };
  } else if (c === 0xc1) throw new WireError("reserved", `0xc1 is not MessagePack, at byte ${i}`);
  else
    throw new WireError(
      "extension",
      `extension types are not taken, at byte ${i}; send times as RFC 3339 strings and durations in milliseconds`,
    );
  if (t.n > b.byteLength - t.body) throw new WireError("truncated", `a length is more than what is left, at byte ${i}`);
  return t;
}

/** Is the number of an item of kind uint, int or float. */
export function readNumber(b: DataView, i: number, t: Item): number {
  if (t.kind === "float") return t.n === 4 ? b.getFloat32(t.body) : b.getFloat64(t.body);
  const signed = t.kind === "int";
  switch (t.n) {
    case 0:
      return signed ? b.getInt8(i) : b.getUint8(i);
    case 1:
      return signed ? b.getInt8(t.body) : b.getUint8(t.body);
    case 2:
      return signed ? b.getInt16(t.body) : b.getUint16(t.body);
    case 4:
      return signed ? b.getInt32(t.body) : b.getUint32(t.body);
  }
  return Number(signed ? b.getBigInt64(t.body) : b.getBigUint64(t.body));
}

/** Reports whether every language can hold a number exactly. */
function common(b: DataView, t: Item): boolean {
  if (t.kind === "float") return Number.isFinite(readNumber(b, 0, t));
  if (t.n !== 8) return true;
  const n = t.kind === "int" ? b.getBigInt64(t.body) : b.getBigUint64(t.body);
  return n >= -BigInt(maxInt) && n <= BigInt(maxInt);
}

/** Is a view of bytes for readItem. */
export const view = (b: Uint8Array): DataView => new DataView(b.buffer, b.byteOffset, b.byteLength);

/**
 * Says whether bytes are one MessagePack value that is safe to decode. It builds nothing, takes linear time, and throws
 * a WireError for nesting or counts beyond the limits, lengths beyond what is left, keys that are no strings, strings
 * that are not UTF-8, the reserved code, extension types, numbers that not every language can hold, nothing at all, and
 * bytes after the end.
 */
export function scan(bytes: Uint8Array, limits: ScanLimits = {}): void {
  const depth = Math.min(limits.depth ?? 32, maxDepth);
  let values = limits.values ?? 10_000;
  const items = limits.items ?? values;
  if (bytes.length === 0) throw new WireError("empty", "expected a MessagePack value, got nothing");
  const b = view(bytes);
  const open: { left: number; map: boolean }[] = [];
  for (let i = 0; ; ) {
    if (--values < 0) throw new WireError("too_many", `too many values in one MessagePack record, at byte ${i}`);
    const t = readItem(b, i);
    const into = open[open.length - 1];
    if (into) {
      if (into.map && into.left % 2 === 0 && t.kind !== "str")
        throw new WireError("key", `a map key is not a string, at byte ${i}`);
      into.left--;
    }
    if (t.kind === "array" && t.n > items)
      throw new WireError("too_many", `too many values in one MessagePack array, at byte ${i}`);
    if (t.kind === "array" || t.kind === "map") {
      if (open.length === depth) throw new WireError("too_deep", `containers are nested too deep, at byte ${i}`);
      open.push({ left: t.n, map: t.kind === "map" });
      i = t.body;
    } else {
      if (t.kind === "str" && !isUtf8(bytes.subarray(t.body, t.body + t.n))) {
        throw new WireError("utf8", `a string is not UTF-8, at byte ${i}`);
      }
      if (!limits.anyNumber && (t.kind === "uint" || t.kind === "int" || t.kind === "float") && !common(b, t)) {
        throw new WireError("number", `a number is beyond ±2^53, not a number or infinite, at byte ${i}`);
      }
      i = t.body + t.n;
    }
    while (open.length > 0 && open[open.length - 1]!.left === 0) open.pop();
    if (open.length > 0) continue;
    if (i < bytes.length)
      throw new WireError("trailing", `there are more bytes after the end of the value, at byte ${i}`);
    return;
  }
}
