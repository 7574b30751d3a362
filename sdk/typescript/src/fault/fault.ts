import type { Execution, FaultRecord, Violation } from "../wire/records.ts";
import { type Kind, type Spec, specOf } from "./kinds.ts";

/** What may be said of a fault beside its kind and message. */
export interface FaultOptions {
  /** For operators; never shown to a model. */
  detail?: string;
  /** The tool's own code, an HTTP status for one. */
  code?: string;
  /** The earliest time for another attempt, in milliseconds from now. */
  retryAfterMs?: number;
  /** What is known of the run. Default: what is usual for the kind. */
  execution?: Execution;
  /** What the model may do next. Default: what is usual for the kind. */
  suggestions?: readonly string[];
  /** How arguments or a result break their schema. */
  violations?: readonly Violation[];
  /** What was caught. It does not travel. */
  cause?: unknown;
}

/**
 * A classified error. Throw one from a tool to say exactly what went wrong: there is a class for every kind, such as
 * RateLimited. The message is for the model and the user.
 */
export class Fault extends Error {
  override readonly name: string = "Fault";
  readonly kind: Kind | (string & {});
  readonly detail: string;
  readonly code: string;
  readonly retryAfterMs: number;
  readonly execution: Execution | "";
  readonly suggestions: readonly string[];
  readonly violations: readonly Violation[];
  /** The tool, worker and attempt that it is about, where it came from the bus. */
  readonly tool: string = "";
  readonly worker: string = "";
  readonly attempt: number = 0;

  constructor(kind: Kind | (string & {}), message: string, options: FaultOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    const spec = specOf(kind);
    this.kind = kind;
    this.detail = text(options.detail);
    this.code = text(options.code);
    this.retryAfterMs = Math.max(0, Math.ceil(options.retryAfterMs ?? 0)) || 0;
    this.execution = options.execution ?? spec.execution;
    this.suggestions = listed(options.suggestions) ?? spec.suggestions;
    this.violations = (listed(options.violations) ?? []).filter((v) => typeof v === "object" && v !== null);
  }

  /** Is what the kind means. */
  get spec(): Spec {
    return specOf(this.kind);
  }

  /** Is what is known of the run: what the fault says, else what is usual for its kind. */
  get run(): Execution {
    return this.execution || this.spec.execution;
  }

  /** Is the same fault with something else said. */
  with(options: FaultOptions & { message?: string }): Fault {
    const { message = this.message, ...rest } = options;
    return faultOfKind(this.kind, message, { ...optionsOf(this), cause: this.cause, ...rest });
  }

  /** Is the fault as it travels. */
  toRecord(): FaultRecord {
    const { kind, message, detail, code, retryAfterMs, tool, worker, attempt } = this;
    const record: FaultRecord = { kind, message, detail, code, retryAfterMs, tool, worker, attempt };
    if (this.execution) record.execution = this.execution;
    return { ...record, suggestions: [...this.suggestions], violations: [...this.violations] };
  }

  /** Is a fault that came from the bus, of the class of its kind. */
  static fromRecord(r: FaultRecord): Fault {
    const f = faultOfKind(r.kind, r.message, { ...r, suggestions: r.suggestions ?? [] });
    return Object.assign(f, {
      tool: r.tool ?? "",
      worker: r.worker ?? "",
      attempt: r.attempt ?? 0,
      execution: r.execution ?? "",
    });
  }
}

// Tools in JavaScript may say anything, and a fault must arrive all the same.

function text(v: unknown): string {
  return typeof v === "object" ? "" : String(v ?? "");
}

function listed<T>(v: readonly T[] | T | undefined): readonly T[] | undefined {
  return Array.isArray(v) ? v : typeof v === "string" ? [v] : undefined;
}

function optionsOf(f: Fault): FaultOptions {
  const { detail, code, retryAfterMs, suggestions, violations } = f;
  return { detail, code, retryAfterMs, suggestions, violations, ...(f.execution ? { execution: f.execution } : {}) };
}

/** The class of a kind. */
export interface FaultClass {
  new (message: string, options?: FaultOptions): Fault;
  readonly kind: Kind;
}

const classes = new Map<string, FaultClass>();

function define(name: string, kind: Kind): FaultClass {
  const cls = {
    [name]: class extends Fault {
      static readonly kind = kind;
      override readonly name = name;
      constructor(message: string, options: FaultOptions = {}) {
        super(kind, message, options);
      }
    },
  }[name]!;
  classes.set(kind, cls);
  return cls;
}

/** Is a fault of the class of its kind; a plain Fault for a kind that this version does not know. */
export function faultOfKind(kind: string, message: string, options: FaultOptions = {}): Fault {
  const cls = classes.get(kind);
  return cls ? new cls(message, options) : new Fault(kind, message, options);
}

/** It took too long. Transient; what ran is unknown. */
export const Timeout = define("Timeout", "timeout");
/** It could not be reached, so nothing ran. Transient: tried again. */
export const Unavailable = define("Unavailable", "unavailable");
/** The worker died or was shut down. Transient; what ran is unknown. */
export const WorkerLost = define("WorkerLost", "worker_lost");
/** No room; nothing ran. Transient: tried elsewhere at once. */
export const Overloaded = define("Overloaded", "overloaded");
/** Too many requests; nothing ran. Transient: tried again after retryAfterMs. */
export const RateLimited = define("RateLimited", "rate_limited");
/** What the tool depends on failed. Transient; what ran is unknown. It is also what an unknown error becomes. */
export const Upstream = define("Upstream", "upstream");
/** Pieces came, and then no more. Transient. */
export const Partial = define("Partial", "partial");
/** The arguments are wrong; nothing ran. Permanent: for the model to correct. */
export const InvalidArguments = define("InvalidArguments", "invalid_arguments");
/** The arguments were cut off; nothing ran. Permanent. */
export const TruncatedCall = define("TruncatedCall", "truncated_call");
/** There is no such tool. Permanent. */
export const ToolNotFound = define("ToolNotFound", "tool_not_found");
/** Not allowed; nothing ran. Permanent: for the user to mend. */
export const Denied = define("Denied", "denied");
/** Somebody must approve it first; nothing ran. Permanent. */
export const ApprovalRequired = define("ApprovalRequired", "approval_required");
/** What was asked for does not exist. Permanent. */
export const NotFound = define("NotFound", "not_found");
/** The tool cannot do that. Permanent. */
export const Unsupported = define("Unsupported", "unsupported");
/** The tool's own answer is that it failed. Permanent. */
export const Failed = define("Failed", "failed");
/** The result does not fit its schema. Permanent: for the tool's author. */
export const InvalidResult = define("InvalidResult", "invalid_result");
/** The tool's circuit breaker is open; nothing ran. The executor's own. */
export const CircuitOpen = define("CircuitOpen", "circuit_open");
/** Somebody cancelled it. Says nothing about the tool. */
export const Cancelled = define("Cancelled", "cancelled");
/** The turn ran out of time. Says nothing about the tool. */
export const DeadlineExceeded = define("DeadlineExceeded", "deadline");
/** The same call failed the same way too often. The executor's own. */
export const LoopBlocked = define("LoopBlocked", "loop_blocked");
/** A bug: the tool's or ours. Transient; what ran is unknown. */
export const Internal = define("Internal", "internal");

// What an instance of each is: the type says no more than Fault does.
export type Timeout = Fault;
export type Unavailable = Fault;
export type WorkerLost = Fault;
export type Overloaded = Fault;
export type RateLimited = Fault;
export type Upstream = Fault;
export type Partial = Fault;
export type InvalidArguments = Fault;
export type TruncatedCall = Fault;
export type ToolNotFound = Fault;
export type Denied = Fault;
export type ApprovalRequired = Fault;
export type NotFound = Fault;
export type Unsupported = Fault;
export type Failed = Fault;
export type InvalidResult = Fault;
export type CircuitOpen = Fault;
export type Cancelled = Fault;
export type DeadlineExceeded = Fault;
export type LoopBlocked = Fault;
export type Internal = Fault;
