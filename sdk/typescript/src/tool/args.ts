import { isUtf8 } from "node:buffer";
import { type Fault, InvalidArguments, TruncatedCall } from "../fault/fault.ts";
import { maxBlob } from "../wire/limits.ts";
import { flawText, jsonFlaw, quickJSON } from "../wire/strictjson.ts";
import { buffer } from "../wire/text.ts";

/**
 * Reads the arguments of a call, strictly: one JSON object, no key twice, UTF-8, at most 64 deep. Nothing, blanks and
 * null are {}, as model APIs send them. It throws a Fault, truncated_call where the text just ends too early.
 */
export function parseArgs(bytes: Uint8Array): Record<string, unknown> {
  if (bytes.length === 0) return {};
  if (bytes.length > maxBlob) throw bad(`the arguments are ${bytes.length} bytes long, at most ${maxBlob} are allowed`);
  const text = buffer(bytes).toString();
  if (text.includes("\ufffd") && !isUtf8(bytes)) throw bad("the arguments are not one JSON object: they are not UTF-8");
  const quick = quickJSON(text);
  if (isObject(quick)) return quick;
  if (/^[ \t\r\n]*(?:null[ \t\r\n]*)?$/.test(text)) return {};
  const flaw = jsonFlaw(text);
  if (flaw?.cut) {
    throw new TruncatedCall(`${flawText(flaw, text)}; the call may have been cut off`, { suggestions });
  }
  if (flaw) throw bad(`the arguments are not one JSON object: ${flawText(flaw, text)}`);
  const args: unknown = JSON.parse(text);
  if (isObject(args)) return args;
  throw bad(
    `the arguments are not one JSON object: expected object, got ${Array.isArray(args) ? "array" : typeof args}`,
  );
}

function isObject(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

const suggestions = ["send one JSON object"];

function bad(message: string): Fault {
  return new InvalidArguments(message, { suggestions });
}
