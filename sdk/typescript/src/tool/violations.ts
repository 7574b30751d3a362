import type { ErrorObject } from "ajv";
import type { Violation } from "../wire/records.ts";
import { truncate } from "../wire/text.ts";
import { byBytes } from "../wire/types.ts";
import type { StandardIssue } from "./standard.ts";

const most = 50;

/** Is a JSON pointer (RFC 6901). */
export function pointer(path: readonly (string | number)[]): string {
  return path.map((part) => `/${String(part).replace(/~/g, "~0").replace(/\//g, "~1")}`).join("");
}

/** Is what ajv found, flat, sorted, each once. */
export function fromAjv(errors: readonly ErrorObject[], value: unknown): Violation[] {
  const forms = errors.some((e) => e.keyword === "anyOf" || e.keyword === "oneOf");
  return settled(
    errors
      .filter((e) => e.keyword !== "if" && !(forms && /\/(anyOf|oneOf)\/\d/.test(e.schemaPath)))
      .map((e) => one(e, value)),
  );
}

function one(e: ErrorObject, value: unknown): Violation {
  const params = e.params as Record<string, unknown>;
  const got = shown(at(value, e.instancePath));
  const here = (name: unknown) => e.instancePath + pointer([String(name)]);
  switch (e.keyword) {
    case "required":
    case "dependentRequired":
      return { pointer: here(params["missingProperty"]), expected: "a value", got: "missing" };
    case "additionalProperties":
    case "unevaluatedProperties":
      return {
        pointer: here(params["additionalProperty"] ?? params["unevaluatedProperty"]),
        expected: "a known property",
        got: "unknown property",
      };
    case "type":
      return { pointer: e.instancePath, expected: String(params["type"]).replaceAll(",", " or "), got };
    case "enum":
      return {
        pointer: e.instancePath,
        expected: (params["allowedValues"] as unknown[]).map((v) => JSON.stringify(v)).join(" or "),
        got,
      };
    case "const":
      return { pointer: e.instancePath, expected: JSON.stringify(params["allowedValue"]), got };
    case "pattern":
      return { pointer: e.instancePath, expected: `text matching ${String(params["pattern"])}`, got };
    case "format":
      return { pointer: e.instancePath, expected: `format ${String(params["format"])}`, got };
  }
  return {
    pointer: e.instancePath,
    expected: (e.message ?? e.keyword).replace(/^must (be|have|match|NOT) /, (m) =>
      m.includes("NOT") ? "not to " : "",
    ),
    got,
  };
}

function at(value: unknown, path: string): unknown {
  for (const part of path.split("/").slice(1)) {
    const key = part.replace(/~1/g, "/").replace(/~0/g, "~");
    value = typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined;
  }
  return value;
}

/** Is what the issues of a Standard Schema say. */
export function fromIssues(issues: readonly StandardIssue[], value: unknown): Violation[] {
  return settled(
    issues.map((issue) => {
      const path = (issue.path ?? []).map((p) => (typeof p === "object" ? p.key : p)).map(String);
      const where = pointer(path);
      const found = at(value, where);
      return {
        pointer: where,
        expected: truncate(issue.message, 200),
        got: found === undefined ? "missing" : shown(found),
      };
    }),
  );
}

/** Is a value as a person may see it: its type, and where it is short, itself. */
function shown(v: unknown): string {
  if (v === undefined) return "missing";
  if (v === null) return "null";
  if (Array.isArray(v)) return `array of ${v.length}`;
  if (typeof v === "object") return "object";
  return `${typeof v} ${truncate(JSON.stringify(v) ?? "", 60)}`;
}

function settled(all: Violation[]): Violation[] {
  const order = (v: Violation) => `${v.pointer}\0${v.expected}\0${v.got}`;
  const unique = [...new Map(all.map((v) => [order(v), v])).entries()]
    .sort(([a], [b]) => byBytes(a, b))
    .map(([, v]) => v);
  if (unique.length <= most) return unique;
  return [...unique.slice(0, most - 1), { pointer: "", expected: `${unique.length - most + 1} more to be corrected` }];
}

/** Is violations as one sentence, in about 2,000 bytes. */
export function sentences(all: readonly Violation[], whole: string): string {
  const said = all.map((v) => {
    const where = v.pointer || whole;
    if (v.got === "missing" && v.expected === "a value") return `${where}: missing`;
    if (v.got === "unknown property") return `${where}: unknown property`;
    return v.got ? `${where}: expected ${v.expected}, got ${v.got}` : `${where}: ${v.expected}`;
  });
  return truncate(said.join("; "), 2000);
}
