import type { Execution } from "../wire/records.ts";

/** Names what went wrong: what code decides on. See docs/errors.md. */
export type Kind =
  | "timeout"
  | "unavailable"
  | "worker_lost"
  | "overloaded"
  | "rate_limited"
  | "upstream"
  | "partial"
  | "invalid_arguments"
  | "truncated_call"
  | "tool_not_found"
  | "denied"
  | "approval_required"
  | "not_found"
  | "unsupported"
  | "failed"
  | "invalid_result"
  | "circuit_open"
  | "cancelled"
  | "deadline"
  | "loop_blocked"
  | "internal";

/** What a kind means unless a manifest says otherwise. */
export interface Spec {
  /** transient: time may mend it; permanent: the same call fails again; neutral: says nothing about the tool. */
  readonly class: "transient" | "permanent" | "neutral";
  /** What is known of the run where the fault itself does not say. */
  readonly execution: Execution;
  /** The status for plain NATS service clients. */
  readonly http: number;
  /** What the model may do next. */
  readonly suggestions: readonly string[];
}

const later = "Try again after a short delay";
const another = "Use an alternative tool";
const other = "Use a different tool";

function row(cls: Spec["class"], execution: Execution, http: number, ...suggestions: string[]): Spec {
  return { class: cls, execution, http, suggestions };
}

/** Every kind of this version. */
export const kinds: Readonly<Record<Kind, Spec>> = {
  timeout: row("transient", "unknown", 504, "Simplify the request", "Wait 30 seconds and try again", another),
  unavailable: row("transient", "not_started", 503, later, another),
  worker_lost: row("transient", "unknown", 504, "Check whether the call took effect before repeating it", another),
  overloaded: row("transient", "not_started", 503, later, "Make fewer calls at once"),
  rate_limited: row("transient", "not_started", 429, "Wait before calling this tool again", "Make fewer calls"),
  upstream: row("transient", "unknown", 500, later, another),
  partial: row("transient", "unknown", 504, "Go on with the pieces that came", "Ask for less at once"),
  invalid_arguments: row("permanent", "not_started", 400, "Correct the arguments to match the tool's schema"),
  truncated_call: row(
    "permanent",
    "not_started",
    400,
    "Repeat the whole call; its arguments were cut off",
    "Use shorter arguments",
  ),
  tool_not_found: row("permanent", "not_started", 404, "Use one of the available tools"),
  denied: row("permanent", "not_started", 403, "Ask the user for access", other),
  approval_required: row("permanent", "not_started", 403, "Ask the user to approve this call"),
  not_found: row("permanent", "done", 404, "Check the name or id that you asked for", "List what exists first"),
  unsupported: row("permanent", "done", 501, "Use a different operation", other),
  failed: row("permanent", "done", 424, "Read the message and try a different approach"),
  invalid_result: row(
    "permanent",
    "done",
    424,
    other,
    "Tell the user that this tool answered in a form that it should not",
  ),
  circuit_open: row("transient", "not_started", 503, another, "Wait before calling this tool again"),
  cancelled: row("neutral", "unknown", 499),
  deadline: row("neutral", "unknown", 504, "Go on with the results that are there"),
  loop_blocked: row("permanent", "not_started", 409, "Stop repeating this call; change the arguments or the approach"),
  internal: row("transient", "unknown", 500, later, another, "Tell the user if it happens again"),
};

/** Is what a kind means. One that this version does not know means the same as internal. */
export function specOf(kind: string): Spec {
  return Object.hasOwn(kinds, kind) ? kinds[kind as Kind] : kinds.internal;
}

/** Is the kind that an HTTP status stands for; undefined for what is no failure. */
export function fromHTTP(status: number): Kind | undefined {
  switch (status) {
    case 400:
    case 422:
      return "invalid_arguments";
    case 401:
    case 403:
      return "denied";
    case 404:
    case 410:
      return "not_found";
    case 405:
    case 501:
      return "unsupported";
    case 408:
      return "timeout";
    case 429:
      return "rate_limited";
    case 502:
    case 503:
      return "unavailable";
  }
  if (status < 400) return undefined;
  return status < 500 ? "failed" : "upstream";
}
