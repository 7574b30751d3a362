import type { Header } from "../wire/headers.ts";

/** Takes log lines. console is one. */
export interface Logger {
  debug(message: string, fields?: Record<string, unknown>): void;
  info(message: string, fields?: Record<string, unknown>): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
}

/** A logger that says nothing. */
export const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** One call as its handler sees it. */
export interface Context {
  readonly tool: string;
  /** The turn and the call within it; empty for a bare NATS request. */
  readonly turn: string;
  readonly call: string;
  /** From 1; 0 for a bare NATS request. */
  readonly attempt: number;
  readonly session: string;
  /** The idempotency key: the caller's, else `<turn>/<call>`; empty for a bare NATS request without one. */
  readonly key: string;
  /** How long this attempt may take in all, in milliseconds. */
  readonly timeoutMs: number;
  /** When this attempt must have ended. */
  readonly deadline: Date;
  /** Is what is left of it, in milliseconds; 0 at the end. */
  remaining(): number;
  /** Aborts at the deadline, on a cancel and when the worker is shut down; its reason is a Fault that says which. */
  readonly signal: AbortSignal;
  /** W3C trace context of the caller; empty where there is none. */
  readonly traceparent: string;
  /** The headers as they came, without Nats-*. */
  readonly headers: Header;
  /** Writes to the worker's log, with the call's tool and reference. */
  readonly log: Logger;
  /**
   * Tells the caller how far the call is; total 0 means not known. Where more is said than 20 times a second the rest is
   * dropped. Bare NATS requests hear nothing.
   */
  progress(done: number, total?: number, message?: string): void;
  /**
   * Sends a piece of the result ahead, in order. It throws where nobody can get it: the piece is no JSON, is larger than a
   * message, or the call is over. Bare NATS requests get no pieces: they get the result.
   */
  partial(piece: unknown): void;
}
