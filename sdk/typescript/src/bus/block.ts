import type { Msg } from "@nats-io/nats-core";
import { buffer } from "../wire/text.ts";

/** What a message of @nats-io/nats-core 3.3 is made of, and does not show. */
interface Insides {
  _msg?: { hdr?: unknown };
  _rdata?: unknown;
}

/**
 * Is the headers of a message as they came, byte for character, "" where there are none. MsgHdrs is slow to make and to
 * ask, so this looks at where the client keeps the bytes; it is undefined where it keeps them elsewhere.
 */
export function headerBlock(m: Msg): string | undefined {
  const { _msg: at, _rdata: bytes } = m as Insides;
  const n = at?.hdr;
  if (typeof n !== "number" || !(bytes instanceof Uint8Array) || n > bytes.length) return undefined;
  if (n < 0) return "";
  return buffer(bytes).toString("latin1", 0, n);
}
