import { quote } from "./error.ts";
import { maxCalls, maxKey, maxMs } from "./limits.ts";
import { idProblem, nameProblem } from "./names.ts";
import type { Alternative, Call } from "./records.ts";

/** Tells what is wrong with one call alone. What calls have to do with one another is for the executor. */
export function checkCall(c: Call, add: (problem: string) => void): void {
  if (c.id !== "") say("id", idProblem(c.id), add);
  target(c, add);
  line("key", c.key, add);
  const after = c.after ?? [];
  if (after.length > maxCalls) add(`after: at most ${maxCalls} are allowed, got ${after.length}`);
  for (const [i, id] of after.slice(0, maxCalls).entries()) {
    say(`after[${i}]`, id === c.id && id !== "" ? `${quote(id)} is the call itself; name another` : idProblem(id), add);
    if (after.indexOf(id) < i) add(`after[${i}]: ${quote(id)} is there twice`);
  }
  if (c.join && !/^(all|any|available|[1-9][0-9]{0,8})$/.test(c.join)) {
    add(`join: expected all, any, available or a number from 1, got ${quote(c.join)}`);
  }
  if (c.joinByMs && c.join !== "available") add(`join_by_ms: only with join available, got ${c.joinByMs}`);
  if (c.effect && !["read", "idempotent", "write"].includes(c.effect)) {
    add(`effect: expected read or idempotent or write, got ${quote(c.effect)}`);
  }
  const alternatives = c.alternatives ?? [];
  if (alternatives.length > 3) add(`alternatives: at most 3 are allowed, got ${alternatives.length}`);
  for (const [i, a] of alternatives.slice(0, 3).entries()) target(a, (problem) => add(`alternatives[${i}].${problem}`));
}

function target(c: Alternative | Call, add: (problem: string) => void): void {
  say("tool", nameProblem(c.tool), add);
  const ms = c.timeoutMs ?? 0;
  if (ms < 0 || ms > maxMs) add(`timeout_ms: expected 0 to ${maxMs}, got ${ms}`);
  line("breaker_key", c.breakerKey, add);
}

function say(field: string, problem: string | undefined, add: (problem: string) => void): void {
  if (problem) add(`${field}: ${problem}`);
}

function line(field: string, s: string | undefined, add: (problem: string) => void): void {
  if (s && (Buffer.byteLength(s) > maxKey || /[\x00-\x1f\x7f-\x9f]/.test(s))) {
    add(`${field}: expected one line of at most ${maxKey} bytes, got ${quote(s)}`);
  }
}
