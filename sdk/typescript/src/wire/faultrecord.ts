import { Fault } from "../fault/fault.ts";
import { fromHTTP, specOf } from "../fault/kinds.ts";
import { decimal } from "./callref.ts";
import { frameOf, get, H, type Header } from "./headers.ts";
import { maxAttempt } from "./limits.ts";
import { isName, maxId } from "./names.ts";
import { type FaultRecord, faultCodec } from "./records.ts";
import { truncate, wellFormed } from "./text.ts";

const day = 24 * 60 * 60 * 1000;

const clean = (s: unknown, max: number): string => truncate(wellFormed(typeof s === "string" ? s : ""), max);

/**
 * Is a fault cut down to what may travel. It never refuses one: a fault must arrive. Texts are cut, violations end after
 * 50 and suggestions after 10; what cannot be a kind is upstream, and an execution that is none is as if nobody had said.
 */
export function cutFault(f: FaultRecord): FaultRecord {
  const out: FaultRecord = {
    kind: isName(String(f.kind)) ? f.kind : "upstream",
    message: clean(f.message, 8 << 10),
    detail: clean(f.detail, 16 << 10),
    code: clean(f.code, 128),
    retryAfterMs: Math.min(day, Math.max(0, Math.ceil(f.retryAfterMs ?? 0))) || 0,
    suggestions: (f.suggestions ?? []).slice(0, 10).map((s) => clean(s, 1 << 10)),
    violations: (f.violations ?? []).slice(0, 50).map((v) => ({
      pointer: clean(v.pointer, 1 << 10),
      expected: clean(v.expected, 1 << 10),
      got: clean(v.got, 1 << 10),
    })),
    tool: clean(f.tool, maxId),
    worker: clean(f.worker, maxId),
    attempt: Math.max(0, Math.min(Math.trunc(f.attempt ?? 0), maxAttempt)) || 0,
  };
  if (f.execution && ["not_started", "unknown", "stopped", "done"].includes(f.execution)) out.execution = f.execution;
  return out;
}

/** Is the payload of an error, nack or stopped frame as JSON, and the headers that go with it. */
export function encodeFault(f: FaultRecord): { headers: Record<string, string>; body: string } {
  const record = cutFault(f);
  const line = truncate(record.message.replace(/[\x00-\x1f\x7f-\x9f]/g, " "), 512).trim();
  const headers: Record<string, string> = {
    [H.serviceError]: line || record.kind,
    [H.serviceErrorCode]: String(specOf(record.kind).http),
  };
  if (record.retryAfterMs) headers[H.retryAfter] = String(record.retryAfterMs);
  return { headers, body: faultCodec.json(record) };
}

/**
 * Reads the fault of an error, nack or stopped frame. It always gives one: the record in the payload, else
 * Nats-Service-Error with its code as an HTTP status, else the payload as text.
 */
export function decodeFault(h: Header, body: Uint8Array): Fault {
  const frame = frameOf(h);
  const record = recordOf(h, body) ?? foreign(h, body, frame);
  if (!record.kind) record.kind = kindOf(frame);
  if (!record.execution && frame === "nack") record.execution = "not_started";
  if (!record.execution && frame === "stopped") record.execution = "stopped";
  record.worker ||= get(h, H.worker);
  record.retryAfterMs ||= decimal(get(h, H.retryAfter), day) ?? 0;
  return Fault.fromRecord(cutFault(record));
}

function recordOf(h: Header, body: Uint8Array): FaultRecord | undefined {
  try {
    const record = faultCodec.read(body, get(h, H.contentType) || undefined);
    return record.kind || record.message ? record : undefined;
  } catch {
    return undefined;
  }
}

function foreign(h: Header, body: Uint8Array, frame: string): FaultRecord {
  const text = Buffer.from(body.subarray(0, 8 << 10))
    .toString()
    .trim();
  const message = get(h, H.serviceError);
  const code = get(h, H.serviceErrorCode);
  const kind = (frame === "error" && fromHTTP(decimal(code, 999) ?? 0)) || kindOf(frame);
  return {
    kind,
    message: message || text || "the worker answered with an error and no words",
    code,
    ...(message ? { detail: text } : {}),
  };
}

function kindOf(frame: string): string {
  return frame === "nack" ? "overloaded" : frame === "stopped" ? "cancelled" : "upstream";
}
