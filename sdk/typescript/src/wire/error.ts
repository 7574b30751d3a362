/** Says in one word why something from the bus was refused. The words are the same in every language. */
export type Code =
  | "empty"
  | "truncated"
  | "too_deep"
  | "too_many"
  | "too_large"
  | "reserved"
  | "extension"
  | "key"
  | "utf8"
  | "number"
  | "trailing"
  | "json"
  | "type"
  | "record"
  | "version"
  | "content_type"
  | "header"
  | "name"
  | "call_ref"
  | "blob_ref"
  | "argument";

/** A refusal: what was wrong with something that came from the bus, or was about to go there. It may be logged. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly code: Code;

  constructor(code: Code, message: string) {
    super(`${message} (${code})`);
    this.code = code;
  }
}

/** Is s as a literal, cut to what a message may show. */
export function quote(s: string): string {
  const shown = 60;
  const rest = s.length > shown ? ` and ${s.length - shown} more` : "";
  const text = JSON.stringify(s.slice(0, shown));
  return text.replace(/[^\x20-\x7e]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`) + rest;
}

/** Collects what is wrong with a record, so that its sender hears all of it at once. */
export class Problems {
  private readonly list: string[] = [];
  private more = 0;

  add(problem: string): void {
    if (this.list.length === 20) {
      this.more++;
      return;
    }
    this.list.push(problem);
  }

  /** Throws a WireError where there are any. */
  throw(): void {
    if (this.list.length === 0) return;
    const more = this.more > 0 ? `; and ${this.more} problems more` : "";
    throw new WireError("record", this.list.join("; ") + more);
  }
}
