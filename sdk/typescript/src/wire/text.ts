/** Is s in at most max bytes of UTF-8, cut between characters and ended with "…" where something was cut. */
export function truncate(s: string, max: number): string {
  if (s.length * 3 <= max) return s;
  const b = Buffer.from(s.length > max ? s.slice(0, max + 1) : s);
  if (b.length <= max && s.length <= max) return s;
  let end = Math.max(0, max - 3);
  while (end > 0 && (b[end]! & 0xc0) === 0x80) end--;
  return `${b.toString("utf8", 0, end)}…`;
}

const lone = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g;

/** Is s without halves of surrogate pairs, which UTF-8 has no bytes for. */
export function wellFormed(s: string): string {
  return s.replace(lone, "\uFFFD");
}

/** Is s as a JSON string, as every language writes it. */
export function jsonString(s: string): string {
  return JSON.stringify(wellFormed(s)).replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"));
}

/** Is the same bytes as a Buffer. */
export function buffer(b: Uint8Array): Buffer {
  return Buffer.isBuffer(b) ? b : Buffer.from(b.buffer, b.byteOffset, b.byteLength);
}
