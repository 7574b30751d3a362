// The parts of Standard Schema (https://standardschema.dev) that are needed: zod, valibot, arktype and others have them.

/** A schema of a library that implements Standard Schema version 1. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Standard JSON Schema, where the library has it. */
    readonly jsonSchema?: {
      readonly input: (options: { target: string }) => Record<string, unknown>;
      readonly output: (options: { target: string }) => Record<string, unknown>;
    };
  };
}

/** What validate answers. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

/** One thing that is wrong with a value. */
export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export function isStandard(schema: object): schema is StandardSchema {
  return "~standard" in schema;
}

/**
 * Is the JSON Schema of a library's schema, by what the library offers: Standard JSON Schema (zod ≥ 4.2, arktype), or a
 * method toJSONSchema or toJsonSchema. Undefined where it has none.
 */
export function jsonSchemaOf(schema: StandardSchema, side: "input" | "output"): Record<string, unknown> | undefined {
  const standard = schema["~standard"].jsonSchema;
  if (standard) return standard[side]({ target: "draft-2020-12" });
  const own = schema as { toJSONSchema?: (o?: object) => object; toJsonSchema?: () => object };
  if (typeof own.toJSONSchema === "function") return own.toJSONSchema({ io: side }) as Record<string, unknown>;
  if (typeof own.toJsonSchema === "function") return own.toJsonSchema() as Record<string, unknown>;
  return undefined;
}
