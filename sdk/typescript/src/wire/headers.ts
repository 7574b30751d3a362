import { type MsgHdrs, headers as natsHeaders } from "@nats-io/nats-core";
import { quote, WireError } from "./error.ts";
import { maxMetadata, maxValue } from "./limits.ts";

/** The headers of a message: names as they stand there, each with its values. */
export type Header = Readonly<Record<string, readonly string[]>>;

/** The header names of version 1. */
export const H = {
  call: "Tb-Call",
  timeout: "Tb-Timeout-Ms",
  key: "Tb-Key",
  session: "Tb-Session",
  tool: "Tb-Tool",
  progress: "Tb-Progress",
  frame: "Tb-Frame",
  worker: "Tb-Worker",
  seq: "Tb-Seq",
  retryAfter: "Tb-Retry-After-Ms",
  blob: "Tb-Blob",
  running: "Tb-Running",
  contentType: "Content-Type",
  traceparent: "traceparent",
  tracestate: "tracestate",
  baggage: "baggage",
  serviceError: "Nats-Service-Error",
  serviceErrorCode: "Nats-Service-Error-Code",
} as const;

/** The content types of version 1. None means json. */
export const json = "application/json";
export const msgpack = "application/msgpack";

/** Is the first value of a header, its name in any case, or "". A name that stands there exactly as asked for wins. */
export function get(h: Header, name: string): string {
  const exact = h[name]?.[0];
  if (exact !== undefined) return exact;
  let found: string | undefined;
  for (const key in h) {
    if (key.length !== name.length || h[key]!.length === 0 || key.toLowerCase() !== name.toLowerCase()) continue;
    if (found === undefined || key < found) found = key;
  }
  return found === undefined ? "" : h[found]![0]!;
}

/** Throws a WireError where a header cannot travel. */
export function checkPair(name: string, value: string): void {
  if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(name)) {
    throw new WireError("header", `header name ${quote(name)}: use 1 to 128 letters, digits and !#$%&'*+-.^_\`|~`);
  }
  if (value.length * 3 > maxValue && Buffer.byteLength(value) > maxValue) {
    throw new WireError(
      "too_large",
      `header ${name} is ${Buffer.byteLength(value)} bytes long, at most ${maxValue} are allowed`,
    );
  }
  if (/[\r\n\0]/.test(value)) {
    throw new WireError("header", `header ${name} has a line break or NUL in it; take it out or encode the value`);
  }
}

/** Throws a WireError where the headers of one message cannot travel together. */
export function checkHeader(h: Header): void {
  let size = "NATS/1.0\r\n\r\n".length;
  for (const name in h) {
    for (const value of h[name]!) {
      checkPair(name, value);
      size += name.length + Buffer.byteLength(value) + 4;
    }
  }
  if (size > maxMetadata) {
    throw new WireError("too_large", `the headers are ${size} bytes long, at most ${maxMetadata} are allowed`);
  }
}

/** Is what may be passed on of a message's headers: all but Nats-*, in any case, since those speak to the server. */
export const inbound = (h: Header): Header => keep(h, (name) => !name.startsWith("nats-"));

const ours = new Set<string>(
  [H.contentType, H.traceparent, H.tracestate, H.baggage, H.serviceError, H.serviceErrorCode].map((n) =>
    n.toLowerCase(),
  ),
);

/** Is what may go out of h: ours, W3C trace context, Content-Type, and the two of NATS services. */
export const filter = (h: Header): Header => keep(h, (name) => name.startsWith("tb-") || ours.has(name));

function keep(h: Header, ok: (lower: string) => boolean): Header {
  for (const name in h) {
    if (ok(name.toLowerCase())) continue;
    return Object.fromEntries(Object.entries(h).filter(([name]) => ok(name.toLowerCase())));
  }
  return h;
}

/**
 * Is what a message is by its headers: Tb-Frame, else "error" where a plain NATS service said so, else "" (a call or a
 * result). It may be a frame of a later version.
 */
export function frameOf(h: Header): string {
  const frame = get(h, H.frame);
  if (frame !== "") return frame;
  return get(h, H.serviceErrorCode) !== "" || get(h, H.serviceError) !== "" ? "error" : "";
}

/** Reports whether a frame from a worker ends its attempt. */
export function ends(frame: string): boolean {
  return ["", "result", "error", "nack", "stopped"].includes(frame);
}

/** Is json or msgpack, or undefined for any other content type. Case and parameters are ignored, and none is json. */
export function codecOf(h: Header): typeof json | typeof msgpack | undefined {
  return codecNamed(get(h, H.contentType));
}

/** Is the codec of a content type, as codecOf says. */
export function codecNamed(contentType: string): typeof json | typeof msgpack | undefined {
  if (contentType === "" || contentType === json) return json;
  switch (contentType.split(";", 1)[0]!.trim().toLowerCase()) {
    case json:
      return json;
    case msgpack:
    case "application/x-msgpack":
    case "application/vnd.msgpack":
      return msgpack;
  }
  return undefined;
}

/** Reports whether a content type is JSON's: none, application/json or anything that ends in +json. */
export function isJSON(contentType: string): boolean {
  const media = contentType.split(";", 1)[0]!.trim().toLowerCase();
  return media === "" || media === json || media.endsWith("+json");
}

const none: Header = Object.freeze({});

/**
 * Headers that are put together. No name is there beforehand, not even __proto__; and unlike what Object.create(null) makes
 * it is as fast as any object.
 */
export class Names {
  [name: string]: string[];
}
Object.setPrototypeOf(Names.prototype, null);
Reflect.deleteProperty(Names.prototype, "constructor");

/** Is the headers of a NATS message as a Header. */
export function fromNats(h: MsgHdrs | undefined): Header {
  if (!h) return none;
  const out = new Names();
  for (const [name, values] of h) out[name] = values;
  return out;
}

/** Is headers to send, where there are any: what is allowed of h, checked. It throws a WireError. */
export function toNats(h: Readonly<Record<string, string>>): MsgHdrs | undefined {
  let out: MsgHdrs | undefined;
  for (const name of Object.keys(h)) {
    const value = h[name]!;
    checkPair(name, value);
    out ??= natsHeaders();
    out.set(name, value);
  }
  return out;
}
