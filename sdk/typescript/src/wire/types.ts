// The types that records are made of. A record is described once, here, and the codecs read and write what it says: see
// codec.ts.

/** JSON that is passed on as it is: arguments, results, schemas. It may be bytes of another content type in a result. */
export class Raw {
  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  static text(text: string): Raw {
    return new Raw(Buffer.from(text));
  }

  /** Is a value as JSON. It throws a TypeError for what JSON has no words for. */
  static of(value: unknown): Raw {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError(`${typeof value} is no JSON value`);
    return Raw.text(text);
  }

  toString(): string {
    return Buffer.from(this.bytes.buffer, this.bytes.byteOffset, this.bytes.byteLength).toString();
  }

  /** Is the value that the JSON says. */
  json(): unknown {
    return JSON.parse(this.toString());
  }
}

/** The type of a field. */
export type Type =
  | { readonly is: "text" | "int" | "num" | "bool" | "raw" | "join" }
  | { readonly is: "list" | "map"; readonly of: Type }
  | { readonly is: "record"; readonly record: Shape };

/** One field of a record. */
export interface Field {
  /** On the wire, as in deadline_ms. */
  readonly wire: string;
  /** In JavaScript, as in deadlineMs. */
  readonly key: string;
  readonly type: Type;
  /** always: written even where it is empty; set: written where it is not undefined; filled: where it is not empty. */
  readonly when: "always" | "set" | "filled";
}

/** What a record is made of: its fields in the order in which they are written. */
export interface Shape {
  readonly name: string;
  readonly fields: readonly Field[];
  readonly byWire: ReadonlyMap<string, Field>;
  /** How many values it may have in MessagePack. */
  readonly values: number;
  /** Set on a result: its value may be bytes, which JSON writes as base64. */
  readonly coded: boolean;
}

type Spec = Type | { readonly type: Type; readonly when: "always" | "set" };

export const text: Type = { is: "text" };
export const int: Type = { is: "int" };
export const num: Type = { is: "num" };
export const bool: Type = { is: "bool" };
export const raw: Type = { is: "raw" };
/** Text that JSON may also write as a number. */
export const join: Type = { is: "join" };
export const list = (of: Type): Type => ({ is: "list", of });
export const map = (of: Type): Type => ({ is: "map", of });
export const record = (shape: Shape): Type => ({ is: "record", record: shape });
export const always = (type: Type): Spec => ({ type, when: "always" });
export const set = (type: Type): Spec => ({ type, when: "set" });

/** Describes a record. */
export function shape(
  name: string,
  spec: Record<string, Spec>,
  more: { values?: number; coded?: boolean } = {},
): Shape {
  const fields = Object.entries(spec).map(([wire, s]): Field => {
    const key = wire.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase());
    return "when" in s ? { wire, key, ...s } : { wire, key, type: s, when: s.is === "record" ? "set" : "filled" };
  });
  return {
    name,
    fields,
    byWire: new Map(fields.map((f) => [f.wire, f])),
    values: more.values ?? 10_000,
    coded: more.coded ?? false,
  };
}

/** What a record is before its codec knows it. */
export type Bag = Record<string, unknown>;

/** Reports whether a field is left out. */
export function leftOut(f: Field, v: unknown): boolean {
  if (v === undefined || v === null) return f.when !== "always";
  if (f.when !== "filled") return false;
  switch (f.type.is) {
    case "list":
      return (v as unknown[]).length === 0;
    case "map":
      return Object.keys(v as Bag).length === 0;
    case "raw":
      return (v as Raw).bytes.length === 0;
    default:
      return v === "" || v === 0 || v === false;
  }
}

/** Is what an absent field that is always written stands for. */
export function zero(type: Type): unknown {
  switch (type.is) {
    case "text":
    case "join":
      return "";
    case "int":
    case "num":
      return 0;
    case "bool":
      return false;
    case "list":
      return [];
    case "map":
      return {};
    case "record":
      return fill(type.record, {});
    case "raw":
      return Raw.text("null");
  }
}

/** Is a record that was read, with what is always there filled in. */
export function fill(shape: Shape, bag: Bag): Bag {
  for (const f of shape.fields) {
    if (f.when === "always" && bag[f.key] === undefined) bag[f.key] = zero(f.type);
  }
  return bag;
}

/** Orders strings by their bytes in UTF-8, as every language can. */
export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
