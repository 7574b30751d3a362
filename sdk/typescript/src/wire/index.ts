/**
 * Version 1 of what travels on the bus: subjects, headers, frames, records and their limits. Nothing here connects.
 * Everything that decodes is bounded and refuses with a WireError.
 */
export * from "./blobref.ts";
export * from "./callref.ts";
export { Codec } from "./codec.ts";
export { type Code, WireError } from "./error.ts";
export * from "./headers.ts";
export * from "./limits.ts";
export * from "./names.ts";
export * from "./records.ts";
export { ReplyRule } from "./reply.ts";
export { type ScanLimits, scan } from "./scan.ts";
export { queueGroup, Subjects } from "./subjects.ts";
export { Raw } from "./types.ts";
