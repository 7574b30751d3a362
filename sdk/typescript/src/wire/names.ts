import { quote, WireError } from "./error.ts";

/** Bytes of a tool's name: one NATS token, and what every model API allows. */
export const maxName = 64;
/** Bytes of the id of a turn, call, worker or executor. */
export const maxId = 128;
/** The one name that no tool has. */
export const reserved = "_turn";

const token = /^[A-Za-z0-9_-]+$/;

/** Reports whether s is one token of at most max characters. */
export function isToken(s: string, max: number): boolean {
  return s.length <= max && token.test(s);
}

/** Reports whether s may name a tool, `_turn` aside. */
export const isName = (s: string): boolean => isToken(s, maxName);

/** Reports whether s may be the id of a turn, call, worker or executor. */
export const isId = (s: string): boolean => isToken(s, maxId);

/** Says what is wrong with a tool's name, or nothing. */
export function nameProblem(name: string): string | undefined {
  if (name === reserved) return `tool name ${reserved} is reserved; use another`;
  return tokenProblem("tool name", name, maxName);
}

/** Says what is wrong with an id, or nothing. */
export function idProblem(id: string): string | undefined {
  return tokenProblem("id", id, maxId);
}

function tokenProblem(what: string, s: string, max: number): string | undefined {
  if (isToken(s, max)) return undefined;
  if (s === "") return `${what} is empty`;
  return `${what} ${quote(s)}: expected 1 to ${max} letters A-Z a-z, digits, _ and -, got ${s.length} characters`;
}

/** Throws a WireError where name cannot name a tool. */
export function checkName(name: string): void {
  const problem = nameProblem(name);
  if (problem) throw new WireError("name", problem);
}

/** Throws a WireError where id is none. */
export function checkId(id: string): void {
  const problem = idProblem(id);
  if (problem) throw new WireError("name", problem);
}
