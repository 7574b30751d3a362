import { maxSubject } from "./limits.ts";
import { isName } from "./names.ts";
import type { Subjects } from "./subjects.ts";

/**
 * Says where a worker may answer. The caller chooses the reply subject of a request, and a worker that answers anywhere
 * is somebody else's hand: asked with the reply `$JS.API.STREAM.PURGE.X` it would purge a stream.
 *
 * It allows the replies and durable results of the tool that was called, inboxes (`_INBOX` and prefixes that begin with
 * `_INBOX_`), `_R_`, and what is below the extra prefixes. It never allows a subject that begins with `$`, has a
 * wildcard, an empty token, a blank, a control or non-ASCII character, or more than 512 bytes.
 */
export class ReplyRule {
  private readonly root: string;
  private readonly extra: string[] = [];

  constructor(subjects: Subjects, ...extra: string[]) {
    this.root = subjects.call("").slice(0, -"call.".length);
    for (const given of extra) {
      const prefix = given.endsWith(".") ? given.slice(0, -1) : given;
      if (isPlainSubject(prefix)) this.extra.push(`${prefix}.`);
    }
  }

  /** Reports whether a worker that was called as tool may publish to reply. */
  allows(reply: string, tool: string): boolean {
    if (!isPlainSubject(reply)) return false;
    const dot = reply.indexOf(".");
    if (dot < 0) return false;
    if (reply.startsWith("_INBOX") && (dot === 6 || reply[6] === "_")) return true;
    if (reply.startsWith("_R_.")) return true;
    if (reply.startsWith(this.root) && isName(tool)) {
      if (this.isBelow(reply, "reply.", tool) || this.isBelow(reply, "res.", tool)) return true;
    }
    return this.extra.some((prefix) => reply.startsWith(prefix));
  }

  private isBelow(reply: string, what: string, tool: string): boolean {
    const at = this.root.length + what.length;
    return (
      reply.startsWith(what, this.root.length) && reply.startsWith(tool, at) && reply.startsWith(".", at + tool.length)
    );
  }
}

const plain = /^[!-)+-=?-~]+$/; // printable ASCII without blank, * and >

let lastPlain = "_INBOX"; // where we may answer we soon do, and ask again

/** Reports whether s is a subject to publish to that is not the server's own. */
export function isPlainSubject(s: string): boolean {
  if (s === lastPlain) return true;
  if (s.length > maxSubject || !plain.test(s)) return false;
  if (s[0] === "$" || s[0] === "." || s.endsWith(".") || s.includes("..")) return false;
  lastPlain = s;
  return true;
}
