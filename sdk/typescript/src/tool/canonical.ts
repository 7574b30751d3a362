import { createHash } from "node:crypto";
import { type Manifest, manifestCodec } from "../wire/records.ts";
import { jsonString } from "../wire/text.ts";
import { byBytes, Raw } from "../wire/types.ts";

/** Is a JSON value as canonical JSON: no blanks, keys sorted by their bytes. */
export function canonicalJSON(v: unknown): string {
  if (typeof v === "string") return jsonString(v);
  if (Array.isArray(v)) return `[${v.map(canonicalJSON).join(",")}]`;
  if (typeof v === "object" && v !== null) {
    const fields = Object.entries(v).filter(([, value]) => value !== undefined);
    fields.sort(([a], [b]) => byBytes(a, b));
    return `{${fields.map(([key, value]) => `${jsonString(key)}:${canonicalJSON(value)}`).join(",")}}`;
  }
  return JSON.stringify(v ?? null);
}

/** Is a JSON value, canonical, ready to travel. */
export const canonicalRaw = (v: unknown): Raw => Raw.text(canonicalJSON(JSON.parse(JSON.stringify(v))));

/** Is a manifest in canonical form. Equal manifests have equal JSON. */
export const manifestJSON = (m: Manifest): string => manifestCodec.json(m);

/** Names the content of a manifest: the first 16 bytes of the SHA-256 of its canonical JSON, in hex. */
export function digest(m: Manifest): string {
  return createHash("sha256").update(manifestJSON(m)).digest("hex").slice(0, 32);
}
