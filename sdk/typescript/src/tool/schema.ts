import { createRequire } from "node:module";
import type { Ajv as AjvClass, ValidateFunction } from "ajv";
import type { Violation } from "../wire/records.ts";
import type { JSONSchema, Schema } from "./infer.ts";
import { isStandard, jsonSchemaOf, type StandardSchema } from "./standard.ts";
import { fromAjv, fromIssues } from "./violations.ts";

/** What a validation comes to: the value as the schema makes it, or what is wrong. */
export type Validated = { value: unknown } | { violations: Violation[] };

/** A schema ready for use. */
export interface Compiled {
  /** As it stands in the manifest; undefined where there is no schema. */
  json: unknown;
  validate(value: unknown): Validated | Promise<Validated>;
}

/** Makes a schema ready for use. It throws an Error that says what is wrong with it. */
export function compileSchema(schema: Schema | undefined, side: "input" | "output"): Compiled {
  if (schema === undefined) return { json: undefined, validate: (value) => ({ value }) };
  if ((typeof schema === "object" || typeof schema === "function") && isStandard(schema as any)) {
    return standard(schema as StandardSchema, side);
  }
  return plain(schema as JSONSchema, side);
}

function standard(schema: StandardSchema, side: "input" | "output"): Compiled {
  const json = jsonSchemaOf(schema, side);
  if (!json) {
    const vendor = schema["~standard"].vendor;
    throw new Error(
      `${side}: ${vendor} gives no JSON Schema for it; give one beside it as ${side}JSONSchema, or use a schema of a library that does (zod 4.2 or later, arktype)`,
    );
  }
  const settle = (value: unknown, r: Awaited<ReturnType<StandardSchema["~standard"]["validate"]>>): Validated =>
    r.issues ? { violations: fromIssues(r.issues, value) } : { value: r.value };
  return {
    json,
    validate(value) {
      const r = schema["~standard"].validate(value);
      return r instanceof Promise ? r.then((r) => settle(value, r)) : settle(value, r);
    },
  };
}

const require = createRequire(import.meta.url);

/** Is the ajv of a draft. It is loaded only where a tool has a plain JSON Schema. */
function ajvFor(schema: JSONSchema): AjvClass {
  const draft = typeof schema === "object" ? String(schema["$schema"] ?? "") : "";
  const module = draft.includes("draft-07")
    ? "ajv"
    : draft.includes("2019-09")
      ? "ajv/dist/2019.js"
      : "ajv/dist/2020.js";
  const { default: Ajv } = require(module) as { default: typeof AjvClass };
  const ajv = new Ajv({ allErrors: true, strict: false, validateFormats: true, ownProperties: true });
  const { default: addFormats } = require("ajv-formats") as { default: (ajv: AjvClass) => void };
  addFormats(ajv);
  return ajv;
}

function plain(schema: JSONSchema, side: "input" | "output"): Compiled {
  let check: ValidateFunction;
  try {
    check = ajvFor(schema).compile(schema);
  } catch (err) {
    throw new Error(`${side}: the JSON Schema is wrong: ${(err as Error).message}`, { cause: err });
  }
  return {
    json: schema,
    validate: (value) => (check(value) ? { value } : { violations: fromAjv(check.errors ?? [], value) }),
  };
}
