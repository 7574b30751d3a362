// Records on the wire: a Codec for each.

import { Problems, WireError } from "./error.ts";
import { codecNamed, json, msgpack } from "./headers.ts";
import { readJSON, writeJSON } from "./jsonrecord.ts";
import { pack, unpack } from "./pack.ts";
import type { Shape } from "./types.ts";

/** Reads and writes one sort of record. All it throws are WireErrors. */
export class Codec<T extends object> {
  readonly shape: Shape;
  private readonly rules: ((record: T, problems: Problems) => void) | undefined;

  constructor(shape: Shape, rules?: (record: T, problems: Problems) => void) {
    this.shape = shape;
    this.rules = rules;
  }

  /** Is a record as MessagePack. The same record gives the same bytes in every language. */
  pack = (record: T): Uint8Array => pack(this.shape, record);

  /** Is a record as JSON. The same record gives the same text in every language. */
  json = (record: T): string => writeJSON(this.shape, record);

  /** Reads a record of a content type; none means that what begins with `{` is JSON and anything else MessagePack. */
  read(bytes: Uint8Array, contentType?: string): T {
    const codec = contentType === undefined ? sniff(bytes) : codecNamed(contentType);
    if (!codec)
      throw new WireError(
        "content_type",
        `content type ${JSON.stringify(contentType)}: expected ${json} or ${msgpack}`,
      );
    return (codec === json ? readJSON(this.shape, bytes) : unpack(this.shape, bytes)) as T;
  }

  /** Throws a WireError that says everything that is wrong with a record that is well typed. */
  check(record: T): void {
    const problems = new Problems();
    this.rules?.(record, problems);
    problems.throw();
  }
}

function sniff(bytes: Uint8Array): string {
  for (const c of bytes) {
    if (c === 0x7b) return json;
    if (c !== 0x20 && c !== 0x09 && c !== 0x0a && c !== 0x0d) break;
  }
  return msgpack;
}
