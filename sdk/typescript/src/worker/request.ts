import { createHash } from "node:crypto";
import { type Fault, InvalidArguments, Unsupported } from "../fault/fault.ts";
import { type BlobRef, parseBlobRef } from "../wire/blobref.ts";
import { type CallRef, callKey, decimal, parseCallRef } from "../wire/callref.ts";
import { checkHeader, codecOf, get, H, type Header, inbound, json } from "../wire/headers.ts";
import { maxMs } from "../wire/limits.ts";
import { truncate } from "../wire/text.ts";

/** Bounds Tb-Key and Tb-Session, in bytes: keys are remembered. */
const maxKey = 1 << 10;

/** What a message asks for, read and checked. What it says about arguments is not looked at here. */
export interface Request {
  ref?: CallRef;
  /** `<turn>/<call>`; empty for a bare request. */
  call: string;
  /** Empty where neither subject nor header says. */
  tool: string;
  /** Milliseconds; 0 where the caller says nothing. */
  timeout: number;
  key: string;
  session: string;
  progress: string;
  blob?: BlobRef;
  args: Uint8Array;
  header: Header;
}

/** Reads the headers of a call that came for tool; "" where the subject does not say. The fault is what is wrong. */
export function parseRequest(tool: string, h: Header, data: Uint8Array): [Request, Fault?] {
  const q: Request = { call: "", tool, timeout: 0, key: "", session: "", progress: "", args: data, header: inbound(h) };
  try {
    read(q, tool, h, data);
    return [q];
  } catch (err) {
    const message = (err as Error).message;
    return [q, err instanceof Unsupported ? (err as Fault) : new InvalidArguments(message, { cause: err })];
  }
}

function read(q: Request, tool: string, h: Header, data: Uint8Array): void {
  checkHeader(q.header);
  const frame = get(h, H.frame);
  if (frame) throw bad(H.frame, `expected none on a call, got ${show(frame)}`);
  const call = get(h, H.call);
  if (call) {
    q.ref = within(H.call, () => parseCallRef(call));
    q.call = q.key = callKey(q.ref);
  }
  const name = get(h, H.tool);
  if (name) {
    if (tool && name !== tool) throw bad(H.tool, `it names ${show(name)} and the subject ${show(tool)}`);
    q.tool = name;
  }
  if (codecOf(h) !== json) {
    throw new Unsupported(`arguments of content type ${show(get(h, H.contentType))}: send ${json}`, {
      execution: "not_started",
    });
  }
  const timeout = get(h, H.timeout);
  if (timeout) {
    q.timeout = decimal(timeout, maxMs) ?? 0;
    if (!q.timeout) throw bad(H.timeout, `expected milliseconds from 1 to ${maxMs}, got ${show(timeout)}`);
  }
  q.key = get(h, H.key) || q.key;
  q.session = get(h, H.session);
  bounded(H.key, q.key);
  bounded(H.session, q.session);
  const blob = get(h, H.blob);
  if (blob) {
    q.blob = within(H.blob, () => parseBlobRef(blob));
    if (data.length > 0)
      throw bad(H.blob, `the arguments are elsewhere, and yet the body has ${data.length} bytes: send one of them`);
  }
  q.progress = get(h, H.progress);
}

function bounded(header: string, value: string): void {
  const size = value.length * 3 > maxKey ? Buffer.byteLength(value) : 0;
  if (size > maxKey) throw bad(header, `expected at most ${maxKey} bytes, got ${size}`);
}

/** Is a complaint about a header, as a fault. */
export const bad = (header: string, problem: string): Fault => new InvalidArguments(`header ${header}: ${problem}`);

const show = (s: string): string => truncate(JSON.stringify(s), 80);

function within<T>(header: string, f: () => T): T {
  try {
    return f();
  } catch (err) {
    throw bad(header, (err as Error).message);
  }
}

/** Tells arguments apart. A claim check stands for what it was made of. */
export function sumOf(q: Request): string {
  if (q.key === "") return "";
  if (q.blob) return q.blob.sha256;
  const { buffer, byteOffset, length } = q.args;
  if (length <= 64) return `=${Buffer.from(buffer, byteOffset, length).toString("latin1")}`;
  return createHash("sha256").update(q.args).digest("base64");
}
