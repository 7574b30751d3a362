import { putBlob } from "../bus/blob.ts";
import type { Bus } from "../bus/connect.ts";
import { Fault, InvalidResult, Overloaded, Upstream } from "../fault/fault.ts";
import { type Kind, specOf } from "../fault/kinds.ts";
import { Bytes, type Tool } from "../tool/define.ts";
import type { Validated } from "../tool/schema.ts";
import { sentences } from "../tool/violations.ts";
import { formatBlobRef } from "../wire/blobref.ts";
import { checkPair, codecNamed, H, json } from "../wire/headers.ts";
import { maxBlob } from "../wire/limits.ts";

/** Seconds that a large result is kept: as long as late results are. */
const blobTTL = 24 * 60 * 60;

/** Ends a call: a result, or a fault and the frame that carries it. */
export interface Answer {
  frame: "" | "error" | "nack" | "stopped";
  fault?: Fault;
  /** Of a result that is not inline JSON. */
  headers: Record<string, string>;
  data: Uint8Array | string;
}

const none: Record<string, string> = Object.freeze({});

export const failed = (fault: Fault): Answer => ({ frame: "error", fault, headers: none, data: "" });
export const stopped = (fault: Fault): Answer => ({ frame: "stopped", fault, headers: none, data: "" });

/** Says that the call did not run and will not. */
export function nack(kind: Kind, message: string, retryAfterMs = 0, suggestions = specOf(kind).suggestions): Answer {
  const fault = new Fault(kind, message, { execution: "not_started", retryAfterMs, suggestions });
  return { frame: "nack", fault, headers: none, data: "" };
}

/** Is the nack of a worker that has no room. */
export const full = (message: string, retryAfterMs: number): Answer => nack(Overloaded.kind, message, retryAfterMs);

/** Says whether a repeat of the call may get the same answer instead of a run: it was done, and would be again. */
export function lasting(a: Answer): boolean {
  return !a.fault || (a.fault.run === "done" && a.fault.spec.class === "permanent");
}

/** Is about how many bytes an answer holds. */
export function sizeOf(a: Answer): number {
  return 256 + a.data.length + (a.fault ? 1024 + a.fault.message.length + a.fault.detail.length : 0);
}

/** Is what a handler returned as bytes of a content type. It throws an Error for what cannot be sent. */
export function encode(v: unknown): { contentType: string; data: Uint8Array | string } {
  if (v instanceof Bytes) {
    const contentType = v.contentType || json;
    checkPair(H.contentType, contentType);
    if (codecNamed(contentType) === json) JSON.parse(Buffer.from(v.data).toString());
    return { contentType, data: v.data };
  }
  if (v instanceof Uint8Array || v instanceof ArrayBuffer)
    throw new Error("bytes have no content type: return new Bytes(data, contentType)");
  const data = JSON.stringify(v === undefined ? null : v);
  if (data === undefined) throw new Error(`a ${typeof v} is no JSON`);
  return { contentType: json, data };
}

/** Turns what a handler returned into an answer that fits the output schema and the bus. It throws a Fault. */
export function resultOf(tool: Tool, bus: Bus, v: unknown): Answer | Promise<Answer> {
  if (tool.output.json === undefined || v instanceof Bytes) return packed(tool, bus, v);
  const checked = tool.output.validate(plain(tool, v));
  return checked instanceof Promise
    ? checked.then((r) => packed(tool, bus, fitting(tool, r)))
    : packed(tool, bus, fitting(tool, checked));
}

function fitting(tool: Tool, r: Validated): unknown {
  if ("value" in r) return r.value;
  throw new InvalidResult(
    `the result of ${tool.name} does not fit its output schema: ${sentences(r.violations, "the result")}`,
    { violations: r.violations },
  );
}

function packed(tool: Tool, bus: Bus, value: unknown): Answer | Promise<Answer> {
  const { contentType, data } = encodeResult(tool, value);
  const headers: Record<string, string> = contentType === json ? none : { [H.contentType]: contentType };
  if (data.length * 3 <= bus.inline) return { frame: "", headers, data };
  const bytes = typeof data === "string" ? Buffer.from(data) : data;
  if (bytes.length <= bus.inline) return { frame: "", headers, data: bytes };
  return checkIn(bus, headers, bytes);
}

function encodeResult(tool: Tool, v: unknown): ReturnType<typeof encode> {
  try {
    return encode(v);
  } catch (err) {
    throw new InvalidResult(`the result of ${tool.name} cannot be sent: ${(err as Error).message}`, { cause: err });
  }
}

/** Is what the caller will read: dates are text by then, and undefined is gone. */
function plain(tool: Tool, v: unknown): unknown {
  const { data } = encodeResult(tool, v);
  return JSON.parse(data as string);
}

/** Puts a large result where its claim check says. */
async function checkIn(bus: Bus, headers: Record<string, string>, data: Uint8Array): Promise<Answer> {
  if (data.length > maxBlob) {
    throw new InvalidResult(
      `the result has ${data.length} bytes, at most ${maxBlob} are allowed: return a part, or a reference to it`,
    );
  }
  try {
    const ref = await putBlob(bus, data, blobTTL);
    return { frame: "", headers: { ...headers, [H.blob]: formatBlobRef(ref) }, data: "" };
  } catch (err) {
    throw new Upstream(
      `the tool ran, but its result of ${data.length} bytes does not fit into a message and could not be stored: ${(err as Error).message}`,
      {
        execution: "done",
        cause: err,
      },
    );
  }
}
