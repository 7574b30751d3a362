import { truncate, wellFormed } from "../wire/text.ts";
import { Fault, type FaultOptions, faultOfKind } from "./fault.ts";
import { fromHTTP, type Kind } from "./kinds.ts";

const maxMessage = 4 << 10;

/**
 * Classifies an error that somebody else made. A Fault is returned as it is, also as a cause. For others the first of
 * these that holds of the error, or of a cause of it, decides:
 *
 * - it is named TimeoutError, or its code is a timeout's (ETIMEDOUT, UND_ERR_HEADERS_TIMEOUT, …): Timeout
 * - it is named AbortError, or its code is ABORT_ERR: Cancelled
 * - the text speaks of a rate limit or of too many requests: RateLimited
 * - it has an HTTP status (status, statusCode, response.status): see fromHTTP, with the status as the code
 * - its code is ECONNREFUSED, ENOTFOUND or EAI_AGAIN, so nothing was reached: Unavailable
 * - else Upstream: transient and of unknown run, the safer guess. Connections that were reset (ECONNRESET) are among
 *   these
 *
 * A retryAfterMs, or a Retry-After header of a response, is kept.
 */
export function faultOf(err: unknown): Fault {
  const chain = causes(err);
  for (const e of chain) if (e instanceof Fault) return e;
  const message = truncate(wellFormed(messageOf(err)), maxMessage);
  const status = first(chain, statusOf);
  const options: FaultOptions = { cause: err };
  if (status !== undefined) options.code = String(status);
  const retryAfterMs = first(chain, retryAfterOf);
  if (retryAfterMs !== undefined) options.retryAfterMs = retryAfterMs;
  return faultOfKind(classify(chain, message, status), message, options);
}

function classify(chain: readonly Thrown[], message: string, status: number | undefined): Kind {
  const names = chain.map((e) => e.name);
  const codes = chain.map((e) => String(e.code ?? ""));
  if (names.includes("TimeoutError") || codes.some((c) => /TIMEDOUT|_TIMEOUT$/.test(c))) return "timeout";
  if (names.includes("AbortError") || codes.includes("ABORT_ERR")) return "cancelled";
  if (/rate.limit|too many requests/i.test(message)) return "rate_limited";
  const kind = status === undefined ? undefined : fromHTTP(status);
  if (kind) return kind;
  if (codes.some((c) => ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"].includes(c))) return "unavailable";
  return "upstream";
}

interface Thrown {
  name?: unknown;
  message?: unknown;
  code?: unknown;
  status?: unknown;
  statusCode?: unknown;
  response?: { status?: unknown; headers?: unknown };
  headers?: unknown;
  retryAfterMs?: unknown;
  cause?: unknown;
  errors?: unknown;
}

/** Is an error and what caused it, ten deep at most. */
function causes(err: unknown): Thrown[] {
  const chain: Thrown[] = [];
  for (let e = err; typeof e === "object" && e !== null && chain.length < 10; ) {
    const thrown = e as Thrown;
    chain.push(thrown);
    e = thrown.cause ?? (Array.isArray(thrown.errors) ? thrown.errors[0] : undefined);
  }
  return chain;
}

function messageOf(err: unknown): string {
  if (err instanceof Error) {
    const cause = err.cause instanceof Error && err.cause.message ? `: ${err.cause.message}` : "";
    return (err.message || err.name) + cause;
  }
  try {
    return typeof err === "string" ? err : `a value was thrown that is no Error: ${JSON.stringify(err)}`;
  } catch {
    return "a value was thrown that is no Error";
  }
}

function first<T>(chain: readonly Thrown[], f: (e: Thrown) => T | undefined): T | undefined {
  for (const e of chain) {
    const v = f(e);
    if (v !== undefined) return v;
  }
  return undefined;
}

function statusOf(e: Thrown): number | undefined {
  const status = e.status ?? e.statusCode ?? e.response?.status;
  return typeof status === "number" && status >= 400 && status < 600 ? status : undefined;
}

function retryAfterOf(e: Thrown): number | undefined {
  if (typeof e.retryAfterMs === "number" && e.retryAfterMs > 0) return e.retryAfterMs;
  const headers = (e.response?.headers ?? e.headers) as
    | ({ get?: (n: string) => unknown } & Record<string, unknown>)
    | undefined;
  if (typeof headers !== "object" || headers === null) return undefined;
  const value = String((typeof headers.get === "function" ? headers.get("retry-after") : headers["retry-after"]) ?? "");
  if (/^[0-9]{1,9}$/.test(value)) return Number(value) * 1000;
  const at = Date.parse(value);
  return at > Date.now() ? at - Date.now() : undefined;
}
