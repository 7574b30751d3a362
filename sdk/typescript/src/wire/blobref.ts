import { decimal } from "./callref.ts";
import { quote, WireError } from "./error.ts";
import { maxBlob, maxChunks } from "./limits.ts";
import { isId } from "./names.ts";

/** A claim check: stands in the Tb-Blob header of a message whose payload is kept elsewhere, in pieces. */
export interface BlobRef {
  readonly id: string;
  /** Bytes in all. */
  readonly size: number;
  /** How many pieces. */
  readonly chunks: number;
  /** Of all the bytes, 64 lower-case hex digits. */
  readonly sha256: string;
}

/** Is the text of Tb-Blob. */
export const formatBlobRef = (r: BlobRef): string => `v1;${r.id};${r.size};${r.chunks};${r.sha256}`;

/** Is the way back from formatBlobRef, and takes nothing else. It throws a WireError. */
export function parseBlobRef(s: string): BlobRef {
  const [v, id = "", sizeText = "", chunksText = "", sha256 = "", ...more] = s.length > 512 ? [] : s.split(";");
  const size = decimal(sizeText, maxBlob);
  const chunks = decimal(chunksText, maxChunks);
  const legal = v === "v1" && more.length === 0 && isId(id) && /^[0-9a-f]{64}$/.test(sha256);
  if (!legal || size === undefined || !chunks) {
    throw new WireError("blob_ref", `claim check ${quote(s)}: expected v1;<id>;<size>;<chunks>;<sha256>`);
  }
  return { id, size, chunks, sha256 };
}
