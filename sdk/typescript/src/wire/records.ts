// The records of wire version 1 (docs/protocol.md): their types, what they are on the wire, and their codecs. Names are
// those of the wire in camel case.

import { checkCall } from "./checkcall.ts";
import { Codec } from "./codec.ts";
import { type Problems, quote, WireError } from "./error.ts";
import { maxAttempt, maxCalls, maxEvents, maxInt, maxMs, maxTools, version } from "./limits.ts";
import { idProblem, nameProblem } from "./names.ts";
import { always, bool, int, join, list, map, num, type Raw, raw, record, set, shape, text } from "./types.ts";

/** What is known of the run behind a fault. */
export type Execution = "not_started" | "unknown" | "stopped" | "done";

/** One way in which arguments or a result break their schema. */
export interface Violation {
  /** RFC 6901; "" is the whole value. */
  pointer: string;
  expected?: string;
  got?: string;
}

/** A fault as it travels. See the class Fault for what the fields mean. */
export interface FaultRecord {
  kind: string;
  message: string;
  detail?: string;
  code?: string;
  retryAfterMs?: number;
  execution?: Execution;
  suggestions?: string[];
  violations?: Violation[];
  tool?: string;
  worker?: string;
  attempt?: number;
}

/** How far a call is. Total 0 means not known. */
export interface Progress {
  done: number;
  total?: number;
  message?: string;
}

/** One tool of a worker, and the digest of its manifest. */
export interface ToolLine {
  id: string;
  version?: string;
  digest: string;
}

/** What a worker says of itself. */
export interface Heartbeat {
  worker: string;
  /** hello, beat or bye. */
  state: string;
  tools: ToolLine[];
  running: number;
  capacity: number;
  leaked?: number;
  draining?: boolean;
  sdk?: string;
  everyMs: number;
  /** From 1. */
  seq: number;
}

/** How failed attempts are repeated. What is absent keeps its default: see docs/manifest.md. Times in milliseconds. */
export interface RetryPolicy {
  strategy?: "exponential_backoff" | "exponential" | "linear" | "constant" | "none" | (string & {});
  initialDelayMs?: number;
  maxDelayMs?: number;
  multiplier?: number;
  jitterPercent?: number;
  maxAttempts?: number;
  maxTotalTimeMs?: number;
}

/** When calls are not even tried. What is absent keeps its default: see docs/manifest.md. Times in milliseconds. */
export interface BreakerPolicy {
  failureThreshold?: number;
  successThreshold?: number;
  timeoutMs?: number;
  mode?: "consecutive" | "failure_rate" | "slow_calls" | (string & {});
  windowMs?: number;
  minCalls?: number;
  rate?: number;
  slowMs?: number;
  timeoutGrowth?: number;
  maxTimeoutMs?: number;
  probes?: number;
  minReporters?: number;
  distinctCalls?: boolean;
  rampUp?: boolean;
}

/** Changes what one fault means for one tool. */
export interface Override {
  class?: "transient" | "permanent" | (string & {});
  retry?: boolean;
  breaker?: boolean;
}

/** What faults of a tool mean, by kind and by code, where they mean something else than usual. */
export interface Classification {
  kinds?: Record<string, Override>;
  codes?: Record<string, Override>;
}

/** What a second run of the same call does: nothing, nothing more, or all of it again. */
export type Effect = "read" | "idempotent" | "write";

/** What a tool declares about itself, as it travels. See docs/manifest.md. */
export interface Manifest {
  id: string;
  version?: string;
  description?: string;
  inputSchema?: Raw;
  outputSchema?: Raw;
  effect?: Effect | "";
  timeoutMs?: number;
  idleTimeoutMs?: number;
  retryPolicy?: RetryPolicy;
  circuitBreaker?: BreakerPolicy;
  classification?: Classification;
  idempotencyKeys?: boolean;
  fallback?: string;
  alternatives?: string[];
  fallbackOn?: string[];
  optional?: boolean;
  default?: Raw;
  tags?: string[];
  annotations?: Record<string, string>;
}

/** The answer to a describe frame. */
export interface DescribeRecord {
  worker: string;
  manifests: Manifest[];
}

/** Another tool that can stand in for the one that was called. R is how JSON is held: see TurnRequest. */
export interface Alternative<R = Raw> {
  tool: string;
  args?: R;
  timeoutMs?: number;
  retry?: RetryPolicy;
  breakerKey?: string;
}

/** One use of a tool within a turn. */
export interface Call<R = Raw> {
  id: string;
  tool: string;
  args?: R;
  timeoutMs?: number;
  key?: string;
  breakerKey?: string;
  retry?: RetryPolicy;
  effect?: Effect | "";
  after?: string[];
  /** all, any, available or a number in digits. */
  join?: string;
  joinByMs?: number;
  optional?: boolean;
  default?: R;
  alternatives?: Alternative<R>[];
  fallbackOn?: string[];
}

/** Asks an executor to run a turn. */
export interface TurnRequest<R = Raw> {
  id: string;
  session?: string;
  deadlineMs?: number;
  calls: Call<R>[];
  deadlineMode?: "soft" | "hard" | (string & {});
  parallel?: number;
  toolParallel?: number;
  onFailure?: "continue" | "stop" | (string & {});
  onClientLoss?: "continue" | "cancel" | (string & {});
  open?: boolean;
}

/** What is said to a turn. */
export interface TurnControl<R = Raw> {
  call?: string;
  calls?: Call<R>[];
  seq?: number;
}

/** The answer to add and close. */
export interface TurnReply {
  ok: boolean;
  fault?: FaultRecord;
}

/** One try at a call. Times in milliseconds. */
export interface Attempt {
  n: number;
  tool: string;
  worker?: string;
  kind?: string;
  message?: string;
  startMs: number;
  durationMs: number;
  delayMs?: number;
  decision?: string;
  because?: string;
}

/** The one end that every call gets. */
export interface Result<R = Raw> {
  call: string;
  tool: string;
  status:
    | "success"
    | "success_via_fallback"
    | "defaulted"
    | "partial"
    | "failed"
    | "skipped"
    | "timed_out"
    | "not_started"
    | "cancelled"
    | (string & {});
  fallbackTool?: string;
  becauseOf?: string;
  value?: R;
  contentType?: string;
  fault?: FaultRecord;
  attempts?: Attempt[];
  /** Says to a person what happened. */
  sentence?: string;
  durationMs: number;
}

/** What a turn ends with: one result for every call, in the order of the request. */
export interface Outcome<R = Raw> {
  turn: string;
  status: "completed" | "partial" | "escalated" | "timed_out" | "cancelled" | (string & {});
  results: Result<R>[];
  /** Calls that go on after the outcome. What they come to is a late result. */
  running?: string[];
  sentence?: string;
  durationMs: number;
}

/** One line of a turn's journal. Fields that a type has no use for are absent. Times in milliseconds. */
export interface Event<R = Raw> {
  v: number;
  type: string;
  seq: number;
  atMs: number;
  timestamp?: string;
  turn: string;
  call?: string;
  toolId?: string;
  attempt?: number;
  worker?: string;
  executor?: string;
  /** Where TurnStarted stands in a trace, as W3C writes it; absent where nobody traces. */
  traceparent?: string;
  progress?: Progress;
  piece?: R;
  pieceSeq?: number;
  error?: FaultRecord;
  classification?: string;
  circuitBreakerState?: string;
  retryCount?: number;
  decision?: string;
  because?: string;
  delayMs?: number;
  request?: TurnRequest<R>;
  timeoutMs?: number;
  becauseOf?: string;
  result?: Result<R>;
  outcome?: Outcome<R>;
}

/** Asks for the late result of a call. */
export interface LateQuery {
  /** Absent: of whichever turn had such a call last. */
  turn?: string;
  call: string;
}

/** A result that came after its turn had ended. */
export interface LateRecord<R = Raw> {
  v: number;
  turn: string;
  session?: string;
  timestamp?: string;
  result?: Result<R>;
  fault?: FaultRecord;
}

/** Asks for the journal of a turn. */
export interface TraceQuery {
  turn: string;
}

/** Some events of one turn in order. */
export interface Page<R = Raw> {
  v: number;
  turn: string;
  events?: Event<R>[];
  last?: boolean;
  fault?: FaultRecord;
}

// What they are on the wire: the fields in the order in which they are written.

const large = { values: 300_000 };

const violation = shape("violation", { pointer: always(text), expected: text, got: text });
const fault = shape("fault", {
  kind: always(text),
  message: always(text),
  detail: text,
  code: text,
  retry_after_ms: int,
  execution: text,
  suggestions: list(text),
  violations: list(record(violation)),
  tool: text,
  worker: text,
  attempt: int,
});
const progress = shape("progress", { done: always(num), total: num, message: text });
const toolLine = shape("tool", { id: always(text), version: text, digest: always(text) });
const heartbeat = shape("heartbeat", {
  worker: always(text),
  state: always(text),
  tools: always(list(record(toolLine))),
  running: always(int),
  capacity: always(int),
  leaked: int,
  draining: bool,
  sdk: text,
  every_ms: always(int),
  seq: always(int),
});
const retry = shape("retry", {
  strategy: text,
  initial_delay_ms: set(int),
  max_delay_ms: set(int),
  multiplier: set(num),
  jitter_percent: set(num),
  max_attempts: set(int),
  max_total_time_ms: set(int),
});
const breaker = shape("circuit_breaker", {
  failure_threshold: set(int),
  success_threshold: set(int),
  timeout_ms: set(int),
  mode: text,
  window_ms: set(int),
  min_calls: set(int),
  rate: set(num),
  slow_ms: set(int),
  timeout_growth: set(num),
  max_timeout_ms: set(int),
  probes: set(int),
  min_reporters: set(int),
  distinct_calls: bool,
  ramp_up: bool,
});
const override = shape("override", { class: text, retry: set(bool), breaker: set(bool) });
const classification = shape("classification", { kinds: map(record(override)), codes: map(record(override)) });
/** The manifest, for its digest. */
export const manifestShape = shape("manifest", {
  id: always(text),
  version: text,
  description: text,
  input_schema: raw,
  output_schema: raw,
  effect: text,
  timeout_ms: int,
  idle_timeout_ms: int,
  retry_policy: record(retry),
  circuit_breaker: record(breaker),
  classification: record(classification),
  idempotency_keys: bool,
  fallback: text,
  alternatives: list(text),
  fallback_on: list(text),
  optional: bool,
  default: raw,
  tags: list(text),
  annotations: map(text),
});
const describe = shape(
  "describe",
  { worker: always(text), manifests: always(list(record(manifestShape))) },
  { values: 100_000 },
);
const alternative = shape("alternative", {
  tool: always(text),
  args: raw,
  timeout_ms: int,
  retry: record(retry),
  breaker_key: text,
});
const call = shape("call", {
  id: always(text),
  tool: always(text),
  args: raw,
  timeout_ms: int,
  key: text,
  breaker_key: text,
  retry: record(retry),
  effect: text,
  after: list(text),
  join: join,
  join_by_ms: int,
  optional: bool,
  default: raw,
  alternatives: list(record(alternative)),
  fallback_on: list(text),
});
const turnRequest = shape(
  "turn_request",
  {
    id: always(text),
    session: text,
    deadline_ms: int,
    calls: always(list(record(call))),
    deadline_mode: text,
    parallel: int,
    tool_parallel: int,
    on_failure: text,
    on_client_loss: text,
    open: bool,
  },
  large,
);
const turnControl = shape("turn_control", { call: text, calls: list(record(call)), seq: int }, large);
const turnReply = shape("turn_reply", { ok: always(bool), fault: record(fault) });
const attempt = shape("attempt", {
  n: always(int),
  tool: always(text),
  worker: text,
  kind: text,
  message: text,
  start_ms: always(num),
  duration_ms: always(num),
  delay_ms: num,
  decision: text,
  because: text,
});
const result = shape(
  "result",
  {
    call: always(text),
    tool: always(text),
    status: always(text),
    fallback_tool: text,
    because_of: text,
    value: raw,
    content_type: text,
    fault: record(fault),
    attempts: list(record(attempt)),
    sentence: text,
    duration_ms: always(num),
  },
  { coded: true },
);
const outcome = shape(
  "outcome",
  {
    turn: always(text),
    status: always(text),
    results: always(list(record(result))),
    running: list(text),
    sentence: text,
    duration_ms: always(num),
  },
  large,
);
const event = shape(
  "event",
  {
    v: always(int),
    type: always(text),
    seq: always(int),
    at_ms: always(num),
    timestamp: text,
    turn: always(text),
    call: text,
    tool_id: text,
    attempt: int,
    worker: text,
    executor: text,
    traceparent: text,
    progress: record(progress),
    piece: raw,
    piece_seq: int,
    error: record(fault),
    classification: text,
    circuit_breaker_state: text,
    retry_count: int,
    decision: text,
    because: text,
    delay_ms: num,
    request: record(turnRequest),
    timeout_ms: num,
    because_of: text,
    result: record(result),
    outcome: record(outcome),
  },
  { values: 301_000 },
);
const lateQuery = shape("late_query", { turn: text, call: always(text) });
const lateRecord = shape("late_record", {
  v: always(int),
  turn: always(text),
  session: text,
  timestamp: text,
  result: record(result),
  fault: record(fault),
});
const traceQuery = shape("trace_query", { turn: always(text) });
const page = shape(
  "page",
  {
    v: always(int),
    turn: always(text),
    events: list(record(event)),
    last: bool,
    fault: record(fault),
  },
  { values: 302_000 },
);

// The rules that a well typed record must keep besides.

function id(p: Problems, field: string, s: string): void {
  const problem = idProblem(s);
  if (problem) p.add(`${field}: ${problem}`);
}

function between(p: Problems, field: string, n: number | undefined, from: number, to: number): void {
  if ((n ?? 0) < from || (n ?? 0) > to) p.add(`${field}: expected ${from} to ${to}, got ${n}`);
}

function oneOf(p: Problems, field: string, s: string | undefined, ...words: string[]): void {
  if (s && !words.includes(s)) p.add(`${field}: expected ${words.join(" or ")}, got ${quote(s)}`);
}

function word(p: Problems, field: string, s: string): void {
  if (s === "" || s.length > 64) p.add(`${field}: expected one line of 1 to 64 bytes, got ${quote(s)}`);
}

function ofVersion(what: string, v: number): void {
  if (v !== version) throw new WireError("version", `${what} of version ${v}: expected ${version}`);
}

function calls(p: Problems, all: readonly Call[]): void {
  if (all.length > maxCalls) p.add(`calls: at most ${maxCalls} are allowed, got ${all.length}`);
  const seen = new Set<string>();
  for (const [i, c] of all.slice(0, maxCalls).entries()) {
    if (c.id !== "" && seen.has(c.id)) p.add(`calls[${i}].id: ${quote(c.id)} is also the id of another call`);
    seen.add(c.id);
    checkCall(c, (problem) => p.add(`calls[${i}].${problem}`));
  }
}

function checkEvent(p: Problems, e: Event, where = ""): void {
  word(p, `${where}type`, e.type);
  id(p, `${where}turn`, e.turn);
  if (e.call) id(p, `${where}call`, e.call);
  between(p, `${where}seq`, e.seq, 0, maxInt);
  between(p, `${where}attempt`, e.attempt, 0, maxAttempt);
}

export const faultCodec = new Codec<FaultRecord>(fault);
export const progressCodec = new Codec<Progress>(progress);
export const heartbeatCodec = new Codec<Heartbeat>(heartbeat, (h, p) => {
  id(p, "worker", h.worker);
  between(p, "running", h.running, 0, maxInt);
  between(p, "capacity", h.capacity, 0, maxInt);
  between(p, "every_ms", h.everyMs, 10, 600_000);
  between(p, "seq", h.seq, 0, maxInt);
  if (h.tools.length > maxTools) p.add(`tools: at most ${maxTools} are allowed, got ${h.tools.length}`);
  for (const [i, t] of h.tools.entries()) {
    const problem = nameProblem(t.id);
    if (problem) p.add(`tools[${i}].id: ${problem}`);
  }
});
export const describeCodec = new Codec<DescribeRecord>(describe);
export const manifestCodec = new Codec<Manifest>(manifestShape);
export const turnRequestCodec = new Codec<TurnRequest>(turnRequest, (r, p) => {
  if (r.id !== "") id(p, "id", r.id);
  between(p, "deadline_ms", r.deadlineMs, 0, maxMs);
  oneOf(p, "deadline_mode", r.deadlineMode, "soft", "hard");
  between(p, "parallel", r.parallel, 0, maxCalls);
  between(p, "tool_parallel", r.toolParallel, 0, maxCalls);
  oneOf(p, "on_failure", r.onFailure, "continue", "stop");
  oneOf(p, "on_client_loss", r.onClientLoss, "continue", "cancel");
  if (r.calls.length === 0 && !r.open)
    p.add("calls: expected at least one, got none; only a turn with open may begin without calls");
  calls(p, r.calls);
});
export const turnControlCodec = new Codec<TurnControl>(turnControl, (c, p) => {
  if (c.call) id(p, "call", c.call);
  between(p, "seq", c.seq, 0, maxInt);
  calls(p, c.calls ?? []);
});
export const turnReplyCodec = new Codec<TurnReply>(turnReply, (r, p) => {
  if (r.ok && r.fault) p.add(`fault: expected none beside ok, got ${quote(r.fault.kind)}`);
  if (!r.ok && !r.fault) p.add("fault: expected one, since it is not ok");
});
export const lateQueryCodec = new Codec<LateQuery>(lateQuery, (q, p) => {
  if (q.turn) id(p, "turn", q.turn);
  id(p, "call", q.call);
});
export const lateRecordCodec = new Codec<LateRecord>(lateRecord, (r, p) => {
  ofVersion("late result", r.v);
  if (r.turn !== "" || !r.fault) id(p, "turn", r.turn);
  if (r.result && r.fault) p.add(`fault: expected none beside a result, got ${quote(r.fault.kind)}`);
  if (!r.result && !r.fault) p.add("result: expected one, or a fault");
  if (r.result) {
    id(p, "result.call", r.result.call);
    word(p, "result.status", r.result.status);
  }
});
export const traceQueryCodec = new Codec<TraceQuery>(traceQuery, (q, p) => id(p, "turn", q.turn));
export const pageCodec = new Codec<Page>(page, (g, p) => {
  ofVersion("page", g.v);
  id(p, "turn", g.turn);
  const events = g.events ?? [];
  if (events.length > maxEvents) p.add(`events: at most ${maxEvents} are allowed, got ${events.length}`);
  for (const [i, e] of events.entries()) {
    ofVersion(`events[${i}]: event`, e.v);
    checkEvent(p, e, `events[${i}].`);
    if (e.turn !== g.turn)
      p.add(`events[${i}].turn: expected ${quote(g.turn)}, as the page says, got ${quote(e.turn)}`);
  }
});
export const eventCodec = new Codec<Event>(event, (e, p) => {
  ofVersion("event", e.v);
  checkEvent(p, e);
});
export const outcomeCodec = new Codec<Outcome>(outcome);
