import { quote, WireError } from "./error.ts";
import { maxAttempt } from "./limits.ts";
import { isId } from "./names.ts";

/** Names one attempt everywhere. Its text, in the Tb-Call header, is `<turn>/<call>/<attempt>`. */
export interface CallRef {
  readonly turn: string;
  readonly call: string;
  /** From 1. */
  readonly attempt: number;
}

/** Is the text of Tb-Call. */
export const formatCallRef = (r: CallRef): string => `${r.turn}/${r.call}/${r.attempt}`;

/** Is `<turn>/<call>`: the idempotency key of all attempts at a call, unless its caller gave one. */
export const callKey = (r: CallRef): string => `${r.turn}/${r.call}`;

/** Is the way back from formatCallRef, and takes nothing else. It throws a WireError. */
export function parseCallRef(s: string): CallRef {
  const first = s.length > 512 ? -1 : s.indexOf("/");
  const second = s.indexOf("/", first + 1);
  const turn = first < 0 ? "" : s.slice(0, first);
  const call = second < 0 ? "" : s.slice(first + 1, second);
  const attempt = decimal(s.slice(second + 1), maxAttempt); // which has no slash
  if (!isId(turn) || !isId(call) || !attempt) {
    throw new WireError(
      "call_ref",
      `call reference ${quote(s)}: expected <turn>/<call>/<attempt>, the attempt from 1 to ${maxAttempt}`,
    );
  }
  return { turn, call, attempt };
}

/** Reads a number from 0 to max as it is usually written: no sign, no leading zero. */
export function decimal(s: string, max: number): number | undefined {
  if (s.length > 16 || !/^(0|[1-9][0-9]*)$/.test(s)) return undefined;
  const n = Number(s);
  return n <= max ? n : undefined;
}
