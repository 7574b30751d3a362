import * as crypto from "node:crypto";
import { type Fault, InvalidArguments, Unsupported } from "../fault/fault.ts";
import { type BlobRef, parseBlobRef } from "../wire/blobref.ts";
import { type CallRef, callKey, decimal, parseCallRef } from "../wire/callref.ts";
import type { Head } from "../wire/head.ts";
import { checkHeader, codecNamed, H, json } from "../wire/headers.ts";
import { maxMs } from "../wire/limits.ts";
import { buffer, truncate } from "../wire/text.ts";

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
  head: Head;
}

/** Reads the headers of a call that came for tool; "" where the subject does not say. The fault is what is wrong. */
export function parseRequest(tool: string, head: Head, data: Uint8Array): [Request, Fault?] {
  const q: Request = { call: "", tool, timeout: 0, key: "", session: "", progress: "", args: data, head };
  try {
    read(q, tool, head, data);
    return [q];
  } catch (err) {
    const message = (err as Error).message;
    return [q, err instanceof Unsupported ? (err as Fault) : new InvalidArguments(message, { cause: err })];
  }
}

function read(q: Request, tool: string, head: Head, data: Uint8Array): void {
  if (!head.checked) checkHeader(head.all);
  const { frame, call, tool: name, timeout, blob } = head;
  if (frame) throw bad(H.frame, `expected none on a call, got ${show(frame)}`);
  if (call) {
    q.ref = within(H.call, parseCallRef, call);
    q.call = q.key = callKey(q.ref);
  }
  if (name) {
    if (tool && name !== tool) throw bad(H.tool, `it names ${show(name)} and the subject ${show(tool)}`);
    q.tool = name;
  }
  if (codecNamed(head.contentType) !== json) {
    throw new Unsupported(`arguments of content type ${show(head.contentType)}: send ${json}`, {
      execution: "not_started",
    });
  }
  if (timeout) {
    q.timeout = decimal(timeout, maxMs) ?? 0;
    if (!q.timeout) throw bad(H.timeout, `expected milliseconds from 1 to ${maxMs}, got ${show(timeout)}`);
  }
  q.key = head.key || q.key;
  q.session = head.session;
  bounded(H.key, q.key);
  bounded(H.session, q.session);
  if (blob) {
    q.blob = within(H.blob, parseBlobRef, blob);
    if (data.length > 0)
      throw bad(H.blob, `the arguments are elsewhere, and yet the body has ${data.length} bytes: send one of them`);
  }
  q.progress = head.progress;
}

function bounded(header: string, value: string): void {
  const size = value.length * 3 > maxKey ? Buffer.byteLength(value) : 0;
  if (size > maxKey) throw bad(header, `expected at most ${maxKey} bytes, got ${size}`);
}

/** Is a complaint about a header, as a fault. */
export const bad = (header: string, problem: string): Fault => new InvalidArguments(`header ${header}: ${problem}`);

const show = (s: string): string => truncate(JSON.stringify(s), 80);

function within<T>(header: string, parse: (text: string) => T, text: string): T {
  try {
    return parse(text);
  } catch (err) {
    throw bad(header, (err as Error).message);
  }
}

/** Up to as many bytes arguments are their own sum, which is cheaper. */
const maxOwnSum = 256;

/** Tells arguments apart. A claim check stands for what it was made of. */
export function sumOf(q: Request): string {
  if (q.key === "") return "";
  if (q.blob) return hashed(q.blob.sha256);
  // What begins as a hashed sum does is hashed, so that no arguments can pass for others.
  if (q.args.length <= maxOwnSum && q.args[0] !== 0) return buffer(q.args).toString("latin1");
  return hashed(sha256(q.args));
}

const hashed = (hex: string): string => `\0${hex}`;

// Since Node 20.12, and not in all that run Node's modules.
const hash = crypto.hash as typeof crypto.hash | undefined;

function sha256(b: Uint8Array): string {
  return hash ? hash("sha256", b, "hex") : crypto.createHash("sha256").update(b).digest("hex");
}
