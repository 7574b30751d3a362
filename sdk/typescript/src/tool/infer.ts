// Types from schemas, so that nobody writes them twice.

import type { StandardSchema } from "./standard.ts";

/** A JSON Schema: draft 2020-12, or what its $schema says of 7 and 2019-09. */
export type JSONSchema = boolean | { readonly [key: string]: unknown };

/** A schema of a tool: of a library with Standard Schema, or plain JSON Schema. */
export type Schema = StandardSchema<any, any> | JSONSchema;

/** Is the type of the values that a schema takes, as the handler gets them. */
export type Infer<S> = S extends StandardSchema<any, infer Output> ? Output : FromJSON<S>;

/** Is the type of the values that a handler returns for a schema: what its library takes. */
export type InferResult<S> = S extends StandardSchema<infer Input, any> ? Input : FromJSON<S>;

/** Is the type of a JSON Schema as far as everyday keywords tell it; unknown beyond that. */
export type FromJSON<S> = S extends { const: infer C }
  ? C
  : S extends { enum: readonly (infer E)[] }
    ? E
    : S extends { type: "object" }
      ? FromObject<S>
      : S extends { type: "array"; items: infer I }
        ? FromJSON<I>[]
        : S extends { type: "array" }
          ? unknown[]
          : S extends { type: "string" }
            ? string
            : S extends { type: "integer" | "number" }
              ? number
              : S extends { type: "boolean" }
                ? boolean
                : S extends { type: "null" }
                  ? null
                  : unknown;

type FromObject<S> = S extends { properties: infer P }
  ? Flat<
      { -readonly [K in keyof P as K extends Required<S> ? K : never]: FromJSON<P[K]> } & {
        -readonly [K in keyof P as K extends Required<S> ? never : K]?: FromJSON<P[K]>;
      }
    >
  : Record<string, unknown>;

type Required<S> = S extends { required: readonly (infer R)[] } ? R : never;
type Flat<T> = { [K in keyof T]: T[K] };
