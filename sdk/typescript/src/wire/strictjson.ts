// JSON.parse is fast and lenient: it takes a key twice, and does not say whether a text is wrong or merely cut off. This
// reads what it read once more, and builds nothing.

import { maxDepth } from "./limits.ts";
import { truncate } from "./text.ts";

/** What is wrong with a JSON text. */
export interface Flaw {
  /** Where, in UTF-16 units from 0. */
  at: number;
  /** Whether it is right as far as it goes, and just ends too early. */
  cut: boolean;
  tooDeep: boolean;
  problem: string;
}

/** Says what is wrong with a JSON text, or nothing: not JSON, a key twice in one object, nested deeper than maxDepth. */
export function jsonFlaw(text: string): Flaw | undefined {
  const c = new Checker(text);
  try {
    c.value(0);
    c.blanks();
    if (c.i < text.length) c.fail("more after the end of the value");
  } catch (err) {
    if (err instanceof Found) return err.flaw;
    throw err;
  }
  return undefined;
}

/**
 * Is the value of a JSON text without a flaw, or undefined where jsonFlaw must look: the text is none, or JSON.parse may
 * have lost a key that was there twice. It lost none where its objects have as many keys as the text may have at most.
 * A long text is none for it: JSON.parse would build all of one that nests too deep, at fifty times its size.
 */
export function quickJSON(text: string): unknown {
  if (text.length > maxQuick) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return keysIn(value, 0) === keysAtMost(text) ? value : undefined;
  } catch {
    return undefined;
  }
}

const maxQuick = 64 << 10;

/** Counts keys. It is not a number where objects and arrays nest too deep. */
function keysIn(value: unknown, depth: number): number {
  if (typeof value !== "object" || value === null) return 0;
  if (depth === maxDepth) return Number.NaN;
  let n = 0;
  if (Array.isArray(value)) {
    for (const item of value) n += keysIn(item, depth + 1);
    return n;
  }
  const keys = Object.keys(value);
  for (const key of keys) n += keysIn((value as Record<string, unknown>)[key], depth + 1);
  return n + keys.length;
}

/** Counts the colons that may follow a key, since what is before them is the end of a string, or blank. */
function keysAtMost(text: string): number {
  let n = 0;
  for (let i = text.indexOf(":"); i >= 0; i = text.indexOf(":", i + 1)) {
    const before = text.charCodeAt(i - 1);
    if (before === 34 || before <= 32) n++;
  }
  return n;
}

/** Is a flaw as a sentence. */
export function flawText(f: Flaw, text: string): string {
  if (f.cut) return `the JSON ends at character ${f.at}, ${f.problem}`;
  return `at character ${f.at}: ${f.problem}, near ${truncate(JSON.stringify(text.slice(Math.max(0, f.at - 20), f.at + 20)), 100)}`;
}

class Found {
  readonly flaw: Flaw;
  constructor(flaw: Flaw) {
    this.flaw = flaw;
  }
}

const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const numberBegun = /-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?)?$/y;
const string = /"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const stringBegun = /"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*(?:\\(?:u[0-9a-fA-F]{0,3})?)?$/y;
const simple = /"[^"\\\x00-\x1f]*"/y;
const words = ["true", "false", "null"];

class Checker {
  i = 0;
  private readonly s: string;

  constructor(s: string) {
    this.s = s;
  }

  fail(problem: string, cut = false, tooDeep = false): never {
    throw new Found({ at: cut ? this.s.length : this.i, cut, tooDeep, problem });
  }

  blanks(): void {
    for (;;) {
      const c = this.s.charCodeAt(this.i);
      if (c !== 32 && c !== 10 && c !== 13 && c !== 9) return;
      this.i++;
    }
  }

  value(depth: number): void {
    this.blanks();
    const c = this.s[this.i];
    if (c === undefined) this.fail("before a value", true);
    if (c === "{" || c === "[") {
      if (depth === maxDepth) this.fail(`nested deeper than ${maxDepth}`, false, true);
      return c === "{" ? this.object(depth + 1) : this.array(depth + 1);
    }
    if (c === '"') {
      this.string();
      return;
    }
    for (const word of words) {
      if (this.s.startsWith(word, this.i)) {
        this.i += word.length;
        return;
      }
      const rest = this.s.length - this.i;
      if (rest < word.length && word.startsWith(this.s.slice(this.i))) this.fail("within a word", true);
    }
    number.lastIndex = this.i;
    const m = number.exec(this.s);
    if (m) {
      this.i += m[0].length;
      return;
    }
    numberBegun.lastIndex = this.i;
    this.fail(
      c === "-" && numberBegun.test(this.s) ? "within a number" : "expected a JSON value",
      c === "-" && this.i + 1 === this.s.length,
    );
  }

  private object(depth: number): void {
    this.i++;
    const keys = new Set<string>();
    for (let first = true; ; first = false) {
      this.blanks();
      if (first && this.s[this.i] === "}") break;
      if (this.s[this.i] === undefined) this.fail("within an object", true);
      if (this.s[this.i] !== '"') this.fail("expected a key in quotes");
      const from = this.i;
      const raw = this.string();
      const key = raw.includes("\\") ? (JSON.parse(raw) as string) : raw.slice(1, -1);
      if (keys.has(key)) {
        this.i = from;
        this.fail(`the key ${truncate(JSON.stringify(key), 60)} is there twice`);
      }
      keys.add(key);
      this.blanks();
      if (this.s[this.i] === undefined) this.fail("after a key", true);
      if (this.s[this.i] !== ":") this.fail("expected a colon");
      this.i++;
      this.value(depth);
      this.blanks();
      if (this.s[this.i] !== ",") break;
      this.i++;
    }
    this.close("}", "an object");
  }

  private array(depth: number): void {
    this.i++;
    this.blanks();
    if (this.s[this.i] !== "]") {
      for (;;) {
        this.value(depth);
        this.blanks();
        if (this.s[this.i] !== ",") break;
        this.i++;
      }
    }
    this.close("]", "an array");
  }

  private close(end: string, what: string): void {
    if (this.s[this.i] === undefined) this.fail(`within ${what}`, true);
    if (this.s[this.i] !== end) this.fail(`expected a comma or the end of ${what}`);
    this.i++;
  }

  private string(): string {
    simple.lastIndex = this.i;
    string.lastIndex = this.i;
    const m = simple.exec(this.s) ?? string.exec(this.s);
    if (m) {
      this.i += m[0].length;
      return m[0];
    }
    stringBegun.lastIndex = this.i;
    return this.fail(stringBegun.test(this.s) ? "within a string" : "a string that is none", stringBegun.lastIndex > 0);
  }
}
