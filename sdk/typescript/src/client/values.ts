// Between records, which hold JSON as it came, and what people want to hold: values.

import { decode } from "@msgpack/msgpack";
import { codecNamed, isJSON, msgpack } from "../wire/headers.ts";
import type { Call, Event, LateRecord, Outcome, Result, TurnRequest } from "../wire/records.ts";
import { scan } from "../wire/scan.ts";
import { Raw } from "../wire/types.ts";

const maxValues = 1_000_000;

/** Is what JSON or MessagePack says; bytes for any other content type, and for what is neither after all. */
export function readValue(raw: Raw, contentType = ""): unknown {
  try {
    if (isJSON(contentType)) return raw.json();
    if (codecNamed(contentType) === msgpack) {
      scan(raw.bytes, { values: maxValues, anyNumber: true });
      return decode(raw.bytes, { useBigInt64: false });
    }
  } catch {
    // bytes, then
  }
  return raw.bytes;
}

/** Is an object with some fields made into something else, where they are there. */
function changed<T extends object>(o: T, change: { [K in keyof T]?: (v: NonNullable<T[K]>) => unknown }): any {
  const out: Record<string, unknown> = { ...(o as Record<string, unknown>) };
  for (const [key, f] of Object.entries(change) as [keyof T & string, (v: unknown) => unknown][]) {
    if (out[key] !== undefined) out[key] = f(out[key]);
  }
  return out;
}

export const plainResult = (r: Result): Result<unknown> => changed(r, { value: (v) => readValue(v, r.contentType) });
export const plainOutcome = (o: Outcome): Outcome<unknown> => changed(o, { results: (all) => all.map(plainResult) });
export const plainLate = (l: LateRecord): LateRecord<unknown> => changed(l, { result: plainResult });
export const plainEvent = (e: Event): Event<unknown> =>
  changed(e, { piece: readValue, result: plainResult, outcome: plainOutcome, request: plainRequest });

const plainRequest = (r: TurnRequest): TurnRequest<unknown> => changed(r, { calls: (all) => all.map(plainCall) });
const plainCall = (c: Call): Call<unknown> =>
  changed(c, {
    args: readValue,
    default: readValue,
    alternatives: (all) => all.map((a) => changed(a, { args: readValue })),
  });

/** Is a call ready to travel. */
export function rawCall(c: Omit<Call<unknown>, "id"> & { id?: string }): Call {
  const call = changed(c as Call<unknown>, {
    args: Raw.of,
    default: Raw.of,
    join: String,
    alternatives: (all) => all.map((a) => changed(a, { args: Raw.of })),
  });
  return { ...call, id: c.id ?? "" };
}
