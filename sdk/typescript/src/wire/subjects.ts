import { quote, WireError } from "./error.ts";
import { isId, isName, isToken } from "./names.ts";

/** The queue group of everybody who answers `tb.v1.call.<tool>`. */
export const queueGroup = "workers";

/**
 * Makes the subjects of one deployment. Names and ids that go in must have been checked: nothing is escaped here.
 */
export class Subjects {
  readonly prefix: string;
  private readonly root: string;

  /** Takes the first token of every subject, 1 to 32 of `A-Z a-z 0-9 _ -`; empty means `tb`. */
  constructor(prefix = "") {
    this.prefix = prefix === "" ? "tb" : prefix;
    if (!isToken(this.prefix, 32)) {
      throw new WireError("name", `subject prefix ${quote(prefix)}: use 1 to 32 letters A-Z a-z, digits, _ and -`);
    }
    this.root = `${this.prefix}.v1.`;
  }

  call = (tool: string): string => `${this.root}call.${tool}`;
  to = (worker: string): string => `${this.root}to.${worker}`;
  cancel = (tool: string): string => `${this.root}cancel.${tool}`;
  heartbeat = (worker: string): string => `${this.root}hb.${worker}`;
  heartbeats = (): string => `${this.root}hb.*`;
  rollcall = (): string => `${this.root}rollcall`;
  reply = (tool: string, executor: string, n: string): string => `${this.root}reply.${tool}.${executor}.${n}`;
  replies = (executor: string): string => `${this.root}reply.*.${executor}.*`;
  turnRun = (): string => `${this.root}turn.run`;
  turnSubmit = (): string => `${this.root}turn.submit`;
  turnCtl = (turn: string): string => `${this.root}turn.ctl.${turn}`;
  turnCtls = (): string => `${this.root}turn.ctl.*`;
  turnLate = (): string => `${this.root}turn.late`;
  turnTrace = (): string => `${this.root}turn.trace`;
  log = (turn: string): string => `${this.root}log.${turn}`;
  logs = (): string => `${this.root}log.*`;
  late = (turn: string, call: string): string => `${this.root}late.${turn}.${call}`;
  lates = (): string => `${this.root}late.*.*`;
  lateOf = (call: string): string => `${this.root}late.*.${call}`;
  res = (tool: string, turn: string, call: string, attempt: number): string =>
    `${this.root}res.${tool}.${turn}.${call}.${attempt}`;
  event = (kind: string): string => `${this.root}event.${kind}`;
  blob = (id: string, chunk: number): string => `${this.root}blob.${id}.${chunk}`;
  blobs = (): string => `${this.root}blob.>`;

  /** Is the stream of claim checks. */
  blobStream = (): string => `${this.prefix.toUpperCase()}_BLOBS`;

  /** Is the tool of a subject that call made. */
  toolOf(subject: string): string | undefined {
    const rest = after(subject, `${this.root}call.`);
    return rest !== undefined && isName(rest) ? rest : undefined;
  }

  /** Is the turn of a subject that turnCtl made. */
  turnOf(subject: string): string | undefined {
    const rest = after(subject, `${this.root}turn.ctl.`);
    return rest !== undefined && isId(rest) ? rest : undefined;
  }

  /** Is the way back from reply: tool, executor and n. */
  parseReply(subject: string): [tool: string, executor: string, n: string] | undefined {
    const [tool = "", executor = "", n = "", ...more] = after(subject, `${this.root}reply.`)?.split(".") ?? [];
    if (more.length > 0 || !isName(tool) || !isId(executor) || !isId(n)) return undefined;
    return [tool, executor, n];
  }
}

function after(s: string, prefix: string): string | undefined {
  return s.startsWith(prefix) ? s.slice(prefix.length) : undefined;
}
