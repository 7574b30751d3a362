import { getBlob } from "../bus/blob.ts";
import { faultOf } from "../fault/classify.ts";
import { Cancelled, Fault, InvalidArguments, Timeout, WorkerLost } from "../fault/fault.ts";
import { parseArgs } from "../tool/args.ts";
import type { Tool } from "../tool/define.ts";
import type { Validated } from "../tool/schema.ts";
import { sentences } from "../tool/violations.ts";
import type { BlobRef } from "../wire/blobref.ts";
import { formatCallRef } from "../wire/callref.ts";
import { get, H, type Header, json } from "../wire/headers.ts";
import { acceptAfter, cancelGrace, maxMs } from "../wire/limits.ts";
import { type Manifest, progressCodec } from "../wire/records.ts";
import { truncate } from "../wire/text.ts";
import { type Answer, encode, failed, resultOf, stopped } from "./answer.ts";
import type { Context, Logger } from "./context.ts";
import type { Request } from "./request.ts";
import type { Memo, Served, Worker } from "./worker.ts";

const maxCallers = 8; // of one run: calls that share an idempotency key
const progressEvery = 50;
const late = 25; // ms after which a timer was held up, as everything was

/** Why a handler was told to stop. */
export type Cause = "timeout" | "cancelled" | "shutdown";

/** Who waits for a run: one attempt, and where to answer it. */
export interface Caller {
  /** `<turn>/<call>`; empty for a bare request, which hears nothing but the end. */
  call: string;
  attempt: number;
  reply: string;
  /** Where frames go that end nothing. */
  progress: string;
  accepted: boolean;
}

/**
 * One use of a handler. Its callers may change while it runs: a newer attempt takes the place of an older one, and
 * another call with the same idempotency key joins. The deadline stays that of the first.
 *
 * Two things can end a run for its callers, whichever comes first: the handler's return (Worker.finish), and the timer,
 * once the handler had its grace after the deadline or a cancel and did not return (Worker.abandon).
 */
export class Run {
  readonly worker: Worker;
  readonly served: Served;
  readonly tool: Tool;
  readonly request: Request;
  readonly begun: number;
  readonly timeout: number;
  /** Held for as long as the handler runs. */
  memos: Memo[] = [];
  /** The one that gets the answer; undefined for a bare request without a key. */
  key: Memo | undefined;
  leaked = false;
  ended = false;
  private callers: Caller[];
  private cause: Cause | undefined;
  private controller: AbortController | undefined;
  private giveUp: number;
  private patient = false; // waited once more
  private timer: NodeJS.Timeout | undefined;
  private seq = 0;
  private said = 0;

  constructor(worker: Worker, served: Served, request: Request, caller: Caller, begun: number) {
    const { tool } = served;
    this.worker = worker;
    this.begun = begun;
    this.served = served;
    this.tool = tool;
    this.request = request;
    this.timeout = request.timeout || tool.manifest.timeoutMs || 30_000;
    this.callers = [caller];
    this.giveUp = this.begun + this.timeout + cancelGrace;
  }

  /** Runs the handler and settles what comes of it, whatever the handler does. */
  start(): void {
    const broken = (err: unknown) => this.worker.finish(this, failed(faultOf(err)));
    let going: Answer | Promise<Answer>;
    try {
      going = this.serve();
    } catch (err) {
      return broken(err);
    }
    if (!(going instanceof Promise)) return this.worker.finish(this, going); // nothing was waited for
    void going.then((a) => this.worker.finish(this, a), broken);
    if (this.timeout <= acceptAfter) this.arm(this.timeout - (performance.now() - this.begun));
    else this.worker.watch(this);
  }

  // Most steps of a call have nothing to wait for, and promises would cost more than the steps.

  private serve(): Answer | Promise<Answer> {
    let args: unknown;
    try {
      args = this.args();
    } catch (err) {
      return this.refused(err);
    }
    if (!(args instanceof Promise)) return this.handle(args);
    return args.then(
      (args) => this.handle(args),
      (err) => this.refused(err),
    );
  }

  /** Is what an error means that came before the handler. */
  private refused(err: unknown): Answer {
    if (this.cause) return this.stoppedAs("not_started");
    return failed(err instanceof Fault ? err : faultOf(err).with({ execution: "not_started" }));
  }

  private handle(args: unknown): Answer | Promise<Answer> {
    if (this.cause) return this.stoppedAs("not_started");
    const { around } = this.worker.options;
    const ctx = new CallContext(this);
    let value: unknown;
    try {
      value = around
        ? around(ctx, async () => this.tool.handler(args, ctx), this.worker)
        : this.tool.handler(args, ctx);
    } catch (err) {
      return this.failure(err);
    }
    if (!isPromise(value)) return this.result(value);
    return Promise.resolve(value).then(
      (value) => this.result(value),
      (err) => this.failure(err),
    );
  }

  private result(value: unknown): Answer | Promise<Answer> {
    try {
      const a = resultOf(this.tool, this.worker.bus, value);
      return a instanceof Promise ? a.catch((err) => this.failure(err)) : a;
    } catch (err) {
      return this.failure(err);
    }
  }

  /** Fetches, reads and checks the arguments. */
  private args(): unknown {
    const { args, blob } = this.request;
    return blob ? this.fetched(blob) : this.checked(args);
  }

  private async fetched(blob: BlobRef): Promise<unknown> {
    let bytes: Uint8Array;
    try {
      bytes = await getBlob(this.worker.bus, blob, this.signal);
    } catch (err) {
      const f = faultOf(err);
      throw f.with({ message: `the arguments could not be fetched: ${f.message}`, execution: "not_started" });
    }
    return this.checked(bytes);
  }

  private checked(bytes: Uint8Array): unknown {
    const checked = this.tool.input.validate(parseArgs(bytes));
    return checked instanceof Promise ? checked.then((r) => this.accepted(r)) : this.accepted(checked);
  }

  private accepted(r: Validated): unknown {
    if ("value" in r) return r.value;
    throw new InvalidArguments(
      `arguments of ${this.tool.name} are invalid: ${sentences(r.violations, "the arguments")}`,
      {
        violations: r.violations,
        suggestions: [`correct these arguments and call ${this.tool.name} again`],
      },
    );
  }

  /**
   * Is what a handler's error means. An error after the handler was told to stop means that it stopped, unless it says
   * itself that it was done.
   */
  private failure(err: unknown): Answer {
    let f = faultOf(err);
    const said = f === err;
    // What could not be reached did not run; the handler, which tried to, did.
    if (!said && f.run === "not_started") f = f.with({ execution: "unknown" });
    if (!this.cause || (said && f.execution === "done")) return failed(f);
    const a = this.stoppedAs("stopped");
    return { ...a, fault: a.fault!.with({ detail: truncate(f.message, 8 << 10) }) };
  }

  /** Ends a run that was told to stop, by the reason for it. With unknown the handler has not returned. */
  stoppedAs(execution: "not_started" | "stopped" | "unknown"): Answer {
    const still = execution === "unknown" ? " and may still be running: it did not stop when it was told to" : "";
    switch (this.cause) {
      case "cancelled": {
        const f = new Cancelled(`the call was cancelled${still}`, { execution });
        return execution === "unknown" ? failed(f) : stopped(f);
      }
      case "shutdown":
        return failed(new WorkerLost(`the worker was shut down while the call ran${still}`, { execution }));
    }
    return failed(new Timeout(`${this.tool.name} did not answer within ${this.timeout} ms${still}`, { execution }));
  }

  // Time.

  /** Whether it has a timer of its own. */
  get timed(): boolean {
    return this.timer !== undefined;
  }

  private arm(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.due, Math.min(Math.max(1, ms), maxMs));
  }

  /** Is what the timer does: the accept frame, the deadline, the end of patience. */
  readonly due = (): void => {
    if (this.ended) return;
    const now = performance.now() + 1; // a timer may be a little early
    const deadline = this.begun + this.timeout;
    if (now >= this.giveUp) {
      if (this.patient || now - this.giveUp < late) return this.worker.abandon(this);
      // We were held up, and what the handler waited for may lie behind us.
      this.patient = true;
      this.halt("timeout");
      return this.arm(late);
    }
    if (now >= this.begun + acceptAfter) this.accept();
    if (!this.cause && now >= deadline) this.halt("timeout");
    else this.arm((this.cause ? this.giveUp : Math.min(deadline, this.giveUp)) - performance.now());
  };

  /** Tells the handler to stop, and gives it the grace to do so. */
  halt(cause: Cause): void {
    if (this.ended || this.cause) return;
    this.cause = cause;
    this.giveUp = Math.min(this.giveUp, performance.now() + cancelGrace);
    this.arm(this.giveUp - performance.now());
    this.controller?.abort(this.reason());
  }

  private reason(): Fault {
    return this.stoppedAs("stopped").fault!;
  }

  get signal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController();
      if (this.cause) this.controller.abort(this.reason());
    }
    return this.controller.signal;
  }

  // Callers.

  /** Gives the run another caller. It says no where the run is as good as over, or has too many. */
  attach(c: Caller): boolean {
    if (this.ended || this.cause) return false;
    const i = this.callers.findIndex((o) => o.call === c.call);
    if (i >= 0) this.callers[i] = c;
    else if (this.callers.length < maxCallers) this.callers.push(c);
    else return false;
    this.accept();
    return true;
  }

  /**
   * Cancels an attempt, or an older one of its call. The run stops with its last caller; where others wait for it the
   * caller is taken away, and returned to be answered.
   */
  drop(call: string, attempt: number): Caller | undefined {
    const i = this.callers.findIndex((o) => o.call === call && o.attempt <= attempt);
    if (this.ended || i < 0) return undefined;
    if (this.callers.length === 1) {
      this.halt("cancelled");
      return undefined;
    }
    return this.callers.splice(i, 1)[0];
  }

  /** Reports whether an attempt up to this one waits for the run; with exactly, this very one. */
  serves(call: string, attempt: number, exactly: boolean): boolean {
    return (
      !this.ended &&
      this.callers.some((o) => o.call === call && (exactly ? o.attempt === attempt : o.attempt <= attempt))
    );
  }

  /** Answers all callers, once. */
  end(a: Answer): void {
    if (this.ended) return;
    this.ended = true;
    clearTimeout(this.timer);
    for (const c of this.callers) this.worker.answer(this.tool, c, a);
    this.controller?.abort(new Cancelled("the call has ended"));
  }

  private accept(): void {
    for (const c of this.callers) {
      if (!c.call || c.accepted) continue;
      c.accepted = true;
      this.worker.send(c.progress, { [H.frame]: "accept", [H.worker]: this.worker.id }, "");
    }
  }

  /** Publishes a frame that ends nothing, after the accept. */
  private frame(headers: Record<string, string>, data: Uint8Array | string): void {
    this.accept();
    for (const c of this.callers) if (c.call) this.worker.send(c.progress, headers, data);
  }

  // What the handler sees.

  log(): Logger {
    const { log } = this.worker;
    const more = { tool: this.tool.name, call: this.request.ref ? formatCallRef(this.request.ref) : "" };
    const line =
      (level: keyof Logger) =>
      (message: string, fields: Record<string, unknown> = {}) =>
        log[level](message, { ...more, ...fields });
    return { debug: line("debug"), info: line("info"), warn: line("warn"), error: line("error") };
  }

  progress(done: number, total: number, message: string): void {
    const now = performance.now();
    if (this.ended || (this.said && now - this.said < progressEvery)) return;
    this.said = now;
    try {
      const data = progressCodec.json({
        done: Number(done),
        total: Number(total),
        message: truncate(String(message), 8 << 10),
      });
      this.frame({ [H.frame]: "progress", [H.worker]: this.worker.id }, data);
    } catch (err) {
      this.log().warn("progress dropped", { error: (err as Error).message });
    }
  }

  partial(piece: unknown): void {
    const what = `a piece of the result of ${this.tool.name}`;
    const { contentType, data } = encode(piece);
    const size = typeof data === "string" ? Buffer.byteLength(data) : data.length;
    const most = this.worker.bus.inline;
    if (size > most)
      throw new Error(`${what} has ${size} bytes, at most ${most} fit into a message: send smaller ones`);
    if (this.ended) throw new Error(`${what} came after the end of the call`);
    this.seq++;
    const headers: Record<string, string> = {
      [H.frame]: "partial",
      [H.worker]: this.worker.id,
      [H.seq]: String(this.seq),
    };
    if (contentType !== json) headers[H.contentType] = contentType;
    this.frame(headers, data);
  }
}

/** A run as its handler sees it. */
class CallContext implements Context {
  readonly #run: Run;

  constructor(run: Run) {
    this.#run = run;
  }

  get tool(): string {
    return this.#run.tool.name;
  }
  get turn(): string {
    return this.#run.request.ref?.turn ?? "";
  }
  get call(): string {
    return this.#run.request.ref?.call ?? "";
  }
  get attempt(): number {
    return this.#run.request.ref?.attempt ?? 0;
  }
  get key(): string {
    return this.#run.request.key;
  }
  get session(): string {
    return this.#run.request.session;
  }
  get timeoutMs(): number {
    return this.#run.timeout;
  }
  get deadline(): Date {
    return new Date(Date.now() + this.remaining());
  }
  get signal(): AbortSignal {
    return this.#run.signal;
  }
  get headers(): Header {
    return this.#run.request.head.all;
  }
  get traceparent(): string {
    return get(this.headers, H.traceparent);
  }
  get log(): Logger {
    return this.#run.log();
  }
  remaining(): number {
    return Math.max(0, this.#run.begun + this.timeoutMs - performance.now());
  }
  progress(done: number, total = 0, message = ""): void {
    this.#run.progress(done, total, message);
  }
  partial(piece: unknown): void {
    this.#run.partial(piece);
  }
}

/** Says whether a tool may run again for a key while a handler that does not stop still runs for it. */
export function twice(m: Manifest): boolean {
  return m.effect === "read" || m.effect === "idempotent" || (!m.effect && !m.idempotencyKeys);
}

/** Whether a handler's value is to be waited for. Query builders and others have a then, and are no promises. */
function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
