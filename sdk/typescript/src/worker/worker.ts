import { availableParallelism } from "node:os";
import type { Msg, Subscription } from "@nats-io/nats-core";
import { headerBlock } from "../bus/block.ts";
import type { Bus } from "../bus/connect.ts";
import { Cancelled, type Fault, InvalidArguments } from "../fault/fault.ts";
import type { Tool } from "../tool/define.ts";
import { sdk } from "../version.ts";
import { type CallRef, callKey, parseCallRef } from "../wire/callref.ts";
import { encodeFault } from "../wire/faultrecord.ts";
import { type Head, headOf, plainHead } from "../wire/head.ts";
import { frameOf, fromNats, get, H, msgpack } from "../wire/headers.ts";
import { acceptAfter, cancelGrace, heartbeatEvery, maxTools } from "../wire/limits.ts";
import { checkId, maxName } from "../wire/names.ts";
import { describeCodec, heartbeatCodec } from "../wire/records.ts";
import { ReplyRule } from "../wire/reply.ts";
import { queueGroup } from "../wire/subjects.ts";
import { truncate } from "../wire/text.ts";
import { type Answer, failed, full, lasting, nack, sizeOf, stopped } from "./answer.ts";
import { type Context, type Logger, silent } from "./context.ts";
import { Item, Memory } from "./memory.ts";
import { nearest } from "./nearest.ts";
import { type Letter, Outbox } from "./outbox.ts";
import { bad, parseRequest, type Request, sumOf } from "./request.ts";
import { type Caller, Run, twice } from "./run.ts";
import { discovery } from "./service.ts";

const busy = 50; // ms after which a full worker may be asked again
const away = 500; // ms after which one that leaves may
const patience = 10_000; // ms with NATS, in what no call bounds
const maxMemory = 64 << 20;

/** Describes a worker. Times are in milliseconds. */
export interface WorkerOptions {
  /** How many calls run at once, over all tools; more get a nack. Default four per CPU, at least four. */
  concurrency?: number;
  /** How long a shutdown lets running calls go on. Default 10,000. */
  grace?: number;
  /** The time between heartbeats. Default 1,000. */
  every?: number;
  /** How long, and of how many calls, answers are remembered, beside 64 MiB in all. Default ten minutes and 10,000. */
  keyTTL?: number;
  maxKeys?: number;
  /** Default: nothing is logged. */
  log?: Logger;
  /** Leaves out the answers to NATS service discovery. */
  plain?: boolean;
  /** Runs around every handler of the worker: for traces and such. It must call next, once, and return what that does. */
  around?: <T>(ctx: Context, next: () => Promise<T>, worker: Worker) => Promise<T>;
}

/** What a worker counts since it was made. */
export interface Stats {
  /** Handlers that have not returned, leaked ones included. */
  running: number;
  /** Handlers that go on although their call is over. */
  leaked: number;
  capacity: number;
  /** Takes no more calls. */
  draining: boolean;
  calls: number;
  errors: number;
  /** Said no to. */
  nacked: number;
  /** Answered from memory, or by a run that was there. */
  repeated: number;
  /** Ignored, because of where they wanted their answer. */
  badReply: number;
  /** Answers that wait for the connection to come back. */
  unsent: number;
}

/** What a worker knows of one of its tools. */
export interface Served {
  readonly tool: Tool;
  calls: number;
  errors: number;
  /** Milliseconds. */
  busy: number;
  lastError: string;
}

/** What is remembered of a call, or of a caller's idempotency key. */
export class Memo extends Item {
  /** The highest that came. */
  attempt = 0;
  /** Of the arguments. */
  sum = "";
  /** While it runs. */
  run: Run | undefined = undefined;
  /** When it is done, if that lasts. */
  answer: Answer | undefined = undefined;
}

/** A call that was cancelled before it came, up to which attempt. */
class Gone extends Item {
  attempt = 0;
}

/** How far a worker is with leaving. A draining one takes what comes through the queue group; a closed one nothing. */
type Phase = "fresh" | "open" | "draining" | "closed";

/** Is a promise that somebody else settles. */
class Signal {
  done = false;
  give: () => void = () => {};
  readonly given = new Promise<void>((resolve) => {
    this.give = () => {
      this.done = true;
      resolve();
    };
  });
}

/**
 * Runs tools: it takes calls from the bus, runs each in its handler, and answers every one exactly once.
 *
 * A call that it does not run gets a nack at once. A handler that ignores its deadline or a cancel is answered for,
 * counted as leaked, and keeps its place until it returns. Calls that carry Tb-Call run once per idempotency key and tool
 * as long as the worker remembers the key; the memory dies with the process.
 */
export class Worker {
  readonly bus: Bus;
  readonly options: WorkerOptions;
  readonly log: Logger;
  readonly id: string;
  private readonly served = new Map<string, Served>();
  private readonly capacity: number;
  private readonly rule: ReplyRule;
  private readonly describe: Uint8Array;
  private readonly memory: Memory<Memo>;
  private readonly gone = new Memory<Gone>(10_000, 10_000, maxMemory);
  private readonly unsent = new Outbox();
  private readonly live = new Set<Run>(); // the oldest first
  private watching = false;
  private readonly began = new Signal();
  private readonly stop = new Signal();
  private readonly hurry = new Signal();
  private readonly idle = new Signal();
  private readonly over = new Signal();
  private phase: Phase = "fresh";
  private quiet = false; // quarantined
  private leaked = 0;
  private nacked = 0;
  private repeats = 0;
  private refusedReplies = 0;
  private beats = 0;
  private wished = false;
  private refusal: Error | undefined;

  /** It listens to nothing before run. It throws an Error that says what is wrong. */
  constructor(bus: Bus, tools: readonly Tool[], options: WorkerOptions = {}) {
    checkId(bus.id);
    if (tools.length < 1 || tools.length > maxTools)
      throw new Error(`worker: tools: expected 1 to ${maxTools}, got ${tools.length}`);
    for (const field of ["concurrency", "grace", "every", "keyTTL", "maxKeys"] as const) {
      const n = options[field];
      if (n !== undefined && !(Number.isInteger(n) && n >= 0))
        throw new Error(`worker: ${field}: expected a whole number from 0, got ${n}`);
    }
    this.bus = bus;
    this.id = bus.id;
    this.options = options;
    this.log = options.log ?? silent;
    this.capacity = options.concurrency || Math.max(4, 4 * availableParallelism());
    this.memory = new Memory(options.keyTTL || 600_000, options.maxKeys || 10_000, maxMemory);
    this.rule = new ReplyRule(bus.subjects);
    for (const tool of tools) {
      if (this.served.has(tool.name)) throw new Error(`worker: tool ${tool.name} is there twice`);
      this.served.set(tool.name, { tool, calls: 0, errors: 0, busy: 0, lastError: "" });
    }
    this.describe = describeCodec.pack({ worker: this.id, manifests: tools.map((t) => t.manifest) });
    if (this.describe.length > bus.inline) {
      throw new Error(
        `worker: the manifests of ${tools.length} tools have ${this.describe.length} bytes, at most ${bus.inline} fit into a message: run several workers`,
      );
    }
  }

  /** Resolves once calls reach the worker. It never does where run fails before that. */
  ready(): Promise<void> {
    return this.began.given;
  }

  /**
   * Takes calls until signal aborts, shutdown is called or a drain frame comes, and then shuts down as shutdown says. It
   * can be called once. It rejects where the bus refuses us, or calls had to be abandoned.
   */
  async run(signal?: AbortSignal): Promise<void> {
    if (this.phase !== "fresh") throw new Error("worker: run was called twice, or after shutdown: make a new Worker");
    this.phase = "open";
    const onAbort = () => this.stop.give();
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
    try {
      await this.serve();
    } finally {
      signal?.removeEventListener("abort", onAbort);
      this.over.give();
    }
  }

  /**
   * Drains the worker: executors are told to choose others, the subscriptions for calls are given back, what had come
   * until then runs, for the grace at most, and then is told to stop. It resolves when run is about to. The end of signal
   * ends the grace.
   */
  async shutdown(signal?: AbortSignal): Promise<void> {
    if (this.phase === "fresh") {
      this.phase = "closed";
      return;
    }
    this.stop.give();
    if (signal?.aborted) this.hurry.give();
    signal?.addEventListener("abort", this.hurry.give, { once: true });
    await this.over.given;
  }

  /** Counts since the worker was made. */
  stats(): Stats {
    const all = [...this.served.values()];
    return {
      running: this.live.size,
      leaked: this.leaked,
      capacity: this.capacity,
      draining: this.quiet || this.phase === "draining" || this.phase === "closed",
      calls: all.reduce((n, s) => n + s.calls, 0),
      errors: all.reduce((n, s) => n + s.errors, 0),
      nacked: this.nacked,
      repeated: this.repeats,
      badReply: this.refusedReplies,
      unsent: this.unsent.size,
    };
  }

  // Life.

  private async serve(): Promise<void> {
    const forget = this.bus.onReconnect(() => this.resume());
    const { calls, others } = this.subscribe();
    const heart = setInterval(() => {
      this.memory.forget(performance.now());
      this.gone.forget(performance.now());
      this.say("beat");
    }, this.options.every || heartbeatEvery);
    try {
      await this.bus.nc.flush();
      await Promise.resolve(); // a refusal comes with the flush
      if (this.refusal) throw this.refusal;
      this.say("hello");
      this.began.give();
      const lost = this.bus.nc.closed().then(() => true);
      if (await Promise.race([this.stop.given.then(() => false), lost])) {
        this.enter("closed");
        await this.abort().catch(() => {});
        throw new Error("worker: the connection was closed while the worker ran");
      }
      await this.leave(calls, others);
    } finally {
      clearInterval(heart);
      forget();
      this.enter("closed");
    }
  }

  private async leave(calls: Subscription[], others: Subscription[]): Promise<void> {
    const grace = this.options.grace ?? 10_000;
    this.enter("draining");
    this.say("beat");
    await drain(calls, grace);
    this.enter("closed");
    const late = sleep(grace);
    await Promise.race([this.idle.given, this.hurry.given, late.over]);
    late.cancel();
    let failure: unknown;
    await this.abort().catch((err: unknown) => {
      failure = err;
    });
    await drain(others, cancelGrace);
    this.say("bye");
    if (this.bus.connected) {
      const slow = sleep(patience);
      await Promise.race([this.bus.nc.flush().catch(() => {}), slow.over]);
      slow.cancel();
    }
    if (failure) throw failure;
  }

  /** Tells what still runs to stop, and says what did not. */
  private async abort(): Promise<void> {
    for (const r of this.live) r.halt("shutdown");
    await this.idle.given; // all are told to stop, so after the grace none is open
    const left = [...this.live].map((r) => `${r.tool.name} ${r.request.call}`);
    if (left.length > 0) throw new Error(`worker: abandoned ${left.join(", ")}, which did not stop`);
  }

  private enter(phase: Phase): void {
    this.phase = phase;
    this.rest();
  }

  /** Ends the wait when the worker leaves and all that runs is answered. */
  private rest(): void {
    if (this.phase === "closed" && this.live.size <= this.leaked) this.idle.give();
  }

  /** Listens to everything. Calls come last, when all that may follow one is there. */
  private subscribe(): { calls: Subscription[]; others: Subscription[] } {
    const { subjects } = this.bus;
    const failed = (err: unknown) => this.log.error("a message could not be handled", { error: String(err) });
    const listen = (subject: string, queue: string, on: (m: Msg) => void) =>
      this.bus.subscribe(
        subject,
        queue,
        on,
        (err) => {
          this.refusal ??= new Error(`worker: subscribe to ${subject}: ${err.message}; let this user subscribe to it`, {
            cause: err,
          });
          this.log.error("subscription refused", { subject, error: err.message });
        },
        failed,
      );
    const others = [listen(subjects.rollcall(), "", () => this.wish())];
    for (const name of this.served.keys())
      others.push(listen(subjects.cancel(name), "", (m) => this.takeCancel(m, name)));
    if (!this.options.plain) {
      for (const [subject, record] of discovery(this, [...this.served.values()])) {
        others.push(listen(subject, "", (m) => this.reply(m, {}, JSON.stringify(record()))));
      }
    }
    others.push(listen(subjects.to(this.id), "", (m) => this.takeOwn(m)));
    const calls = [...this.served.keys()].map((name) =>
      listen(subjects.call(name), queueGroup, (m) => this.takeCall(m, name, false)),
    );
    return { calls, others };
  }

  // Heartbeats.

  /** Asks for a heartbeat soon, not all workers at once. */
  private wish(): void {
    if (this.wished) return;
    this.wished = true;
    setTimeout(() => {
      this.wished = false;
      if (!this.over.done) this.say("beat");
    }, Math.random() * 20).unref();
  }

  private say(state: "hello" | "beat" | "bye"): void {
    const { running, leaked, capacity, draining } = this.stats();
    const tools = [...this.served.values()].map(({ tool }) => ({
      id: tool.name,
      version: tool.manifest.version ?? "",
      digest: tool.digest,
    }));
    const everyMs = this.options.every || heartbeatEvery;
    const data = heartbeatCodec.pack({
      worker: this.id,
      state,
      tools,
      running,
      capacity,
      leaked,
      draining,
      sdk,
      everyMs,
      seq: ++this.beats,
    });
    const f = this.bus.publish(this.bus.subjects.heartbeat(this.id), {}, data);
    if (f && state !== "beat") this.log.warn("heartbeat not sent", { error: f.message });
  }

  /** Is what follows a reconnect: the answers that waited, and a heartbeat. */
  private resume(): void {
    for (const l of this.unsent.empty()) this.post(l);
    this.wish();
  }

  // Messages.

  /** A message on the worker's own subject: a call that was sent here by choice, or a control frame. */
  private takeOwn(m: Msg): void {
    const head = plainHead(headerBlock(m));
    if (head?.frame === "") return this.takeCall(m, "", true, head);
    const frame = frameOf(fromNats(m.headers));
    switch (frame) {
      case "":
        return this.takeCall(m, "", true);
      case "cancel":
        return this.takeCancel(m, "");
      case "ping":
        return this.pong(m);
      case "describe":
        return this.reply(m, { [H.frame]: "manifests", [H.worker]: this.id, [H.contentType]: msgpack }, this.describe);
      case "drain":
        this.log.info("told to drain");
        return this.stop.give();
      case "quarantine":
        this.log.warn("told to take no more calls");
        this.quiet = true;
        return this.wish();
    }
    this.log.warn("frame of an unknown kind ignored", { frame: truncate(frame, 80) });
  }

  /** Answers a control frame, if the asker may choose that subject. */
  private reply(m: Msg, headers: Record<string, string>, data: Uint8Array | string): void {
    if (this.mayAnswer(m.reply ?? "", "")) this.send(m.reply!, headers, data);
  }

  private pong(m: Msg): void {
    const headers: Record<string, string> = { [H.frame]: "pong", [H.worker]: this.id };
    const call = get(fromNats(m.headers), H.call);
    if (call) {
      const ref = refOf(call);
      headers[H.running] = ref && this.runs(ref, "", true).length > 0 ? "1" : "0";
    }
    this.reply(m, headers, "");
  }

  /** Stops an attempt and older ones of its call. Where the call is not here it may be on its way. */
  private takeCancel(m: Msg, name: string): void {
    const ref = refOf(get(fromNats(m.headers), H.call));
    if (!ref) return this.log.warn("cancel ignored: it names no attempt");
    const runs = this.runs(ref, name, false);
    if (runs.length === 0) this.foresee(ref);
    for (const r of runs) {
      const c = r.drop(callKey(ref), ref.attempt);
      if (c)
        this.answer(
          r.tool,
          c,
          stopped(new Cancelled("the call was cancelled; its run goes on for others with the same key")),
        );
    }
  }

  /** Is the runs that serve a call: this attempt exactly, or also older ones. */
  private runs(ref: CallRef, name: string, exactly: boolean): Run[] {
    const found: Run[] = [];
    const call = callKey(ref);
    for (const tool of this.served.keys()) {
      if (name && name !== tool) continue;
      const run = this.memory.get(memoKey(tool, call), performance.now())?.run;
      if (run?.serves(call, ref.attempt, exactly)) found.push(run);
    }
    return found;
  }

  /** Remembers a cancel whose call is not here, for a while, unless the call has been here. */
  private foresee(ref: CallRef): void {
    const now = performance.now();
    const call = callKey(ref);
    for (const tool of this.served.keys()) {
      const m = this.memory.get(memoKey(tool, call), now);
      if (m && m.attempt >= ref.attempt) return;
    }
    const g = this.gone.get(call, now) ?? this.gone.add(new Gone(call));
    g.attempt = Math.max(g.attempt, ref.attempt);
    this.gone.keep(g, call.length, now);
  }

  /** Is what a message that asks for a run leads to: a run, or an answer at once. Chosen: the caller chose this worker. */
  private takeCall(m: Msg, name: string, chosen: boolean, head = headIn(m)): void {
    const reply = m.reply ?? "";
    let [q, f] = parseRequest(name, head, m.data);
    if (!this.mayAnswer(reply, q.tool)) return;
    const c: Caller = { call: q.call, attempt: q.ref?.attempt ?? 0, reply, progress: reply, accepted: false };
    const s = this.served.get(q.tool);
    if (!f && q.progress) {
      c.progress = q.progress;
      if (!this.rule.allows(q.progress, q.tool)) {
        f = bad(
          H.progress,
          `expected a reply subject of ${q.tool} or an inbox, got ${truncate(JSON.stringify(q.progress), 80)}`,
        );
      }
    }
    if (f) return this.answer(s?.tool, c, failed(f));
    if (!s) return this.answer(undefined, c, this.unknown(q.tool));
    const now = this.admit(s, q, c, chosen);
    if (now) this.answer(s.tool, c, now);
  }

  /** Is the first question about any message: whether its reply subject is one that a caller may choose. */
  private mayAnswer(reply: string, name: string): boolean {
    if (this.served.has(name) ? this.rule.allows(reply, name) : this.someAllows(reply)) return true;
    this.refusedReplies++;
    this.log.warn("message ignored: we do not answer there", {
      reply: truncate(reply, 200),
      tool: truncate(name, maxName),
    });
    return false;
  }

  private someAllows(reply: string): boolean {
    for (const name of this.served.keys()) if (this.rule.allows(reply, name)) return true;
    return false;
  }

  private unknown(name: string): Answer {
    if (!name)
      return nack(
        "tool_not_found",
        `header ${H.tool} is missing: a call to a worker of one's choice must name the tool`,
      );
    const near = nearest(name, [...this.served.keys()]);
    return nack(
      "tool_not_found",
      `this worker has no tool ${truncate(JSON.stringify(name), 80)}`,
      0,
      near.length > 0 ? near : undefined,
    );
  }

  // Calls.

  /** Decides about a call: it begins a run, gives the caller to one that is there, or says what to answer now. */
  private admit(s: Served, q: Request, c: Caller, chosen: boolean): Answer | undefined {
    const now = performance.now();
    const { name } = s.tool;
    const sum = sumOf(q);
    const callName = q.call && memoKey(name, q.call);
    let m: Memo | undefined;
    if (q.call) {
      const gone = this.gone.size > 0 ? this.gone.get(q.call, now) : undefined;
      if (gone && c.attempt <= gone.attempt) {
        return stopped(new Cancelled("the call was cancelled before it came", { execution: "not_started" }));
      }
      m = this.memory.get(callName, now);
      const seen = m?.attempt ?? 0;
      if (c.attempt < seen) return this.no(nack("cancelled", `attempt ${c.attempt} is older than attempt ${seen}`));
    }
    const own = q.key === q.call; // no key of the caller's
    const keyName = own ? callName : q.key && memoKey(name, q.key);
    const k = own ? m : q.key ? this.memory.get(keyName, now) : undefined;
    if (k && (k.run || k.answer)) return this.repeat(k, sum, q, c, now);
    if (this.quiet || this.phase === "closed" || (this.phase === "draining" && chosen)) {
      return this.no(full("this worker takes no more calls", away));
    }
    if (this.live.size >= this.capacity) {
      return this.no(full(`this worker runs ${this.live.size} calls, which is all it may`, busy));
    }
    const r = new Run(this, s, q, c, now);
    if (q.key) {
      r.key = this.remember(r, k ?? this.memory.add(new Memo(keyName)), own ? c.attempt : 0);
      r.key.sum = sum;
    }
    if (q.call && !own) this.remember(r, m ?? this.memory.add(new Memo(callName)), c.attempt);
    this.live.add(r);
    s.calls++;
    r.start();
    return undefined;
  }

  /**
   * Sees to it that a run is due when acceptAfter has passed since it began, if it has not ended by then. One timer does
   * for all: most runs end before it.
   */
  watch(r: Run): void {
    if (this.watching) return;
    this.watching = true;
    setTimeout(this.look, Math.max(1, r.begun + acceptAfter - performance.now()));
  }

  private look = (): void => {
    this.watching = false;
    const old = performance.now() + 1 - acceptAfter; // a timer may be a little early
    for (const r of this.live) {
      if (r.timed) continue;
      if (r.begun > old) return this.watch(r); // as are those that come after it
      r.due();
    }
  };

  private no(a: Answer): Answer {
    this.nacked++;
    return a;
  }

  /** Puts a run under a key for as long as it runs. */
  private remember(r: Run, m: Memo, attempt: number): Memo {
    this.memory.hold(m);
    m.run = r;
    m.attempt = Math.max(m.attempt, attempt);
    if (!r.memos.includes(m)) r.memos.push(m);
    return m;
  }

  /** Is a call whose key is known: it gets the answer that was given, or waits for the run that is there. */
  private repeat(m: Memo, sum: string, q: Request, c: Caller, now: number): Answer | undefined {
    if (m.sum !== sum) {
      return failed(
        new InvalidArguments(
          `the key ${truncate(JSON.stringify(q.key), 80)} was used with other arguments: choose another key for another call`,
        ),
      );
    }
    if (m.answer) {
      this.repeats++;
      m.attempt = Math.max(m.attempt, c.attempt);
      this.memory.keep(m, sizeOf(m.answer) + m.sum.length, now);
      return m.answer;
    }
    const r = m.run!;
    if (!r.attach(c))
      return this.no(
        full(
          `an earlier run for the key ${truncate(JSON.stringify(q.key), 80)} has not ended: ask again later`,
          cancelGrace,
        ),
      );
    this.repeats++;
    if (q.call) {
      const name = memoKey(r.tool.name, q.call);
      this.remember(r, this.memory.get(name, now) ?? this.memory.add(new Memo(name)), c.attempt);
    }
    return undefined;
  }

  /** Is the end of a handler: its place is free, its answer is remembered if it lasts, and then its callers get it. */
  finish(r: Run, a: Answer): void {
    const now = performance.now();
    this.live.delete(r);
    if (r.leaked) this.leaked--;
    for (const m of r.memos) {
      if (m.run !== r) continue;
      m.run = undefined;
      const kept = m === r.key && lasting(a);
      if (kept) m.answer = a;
      this.memory.keep(m, (kept ? sizeOf(a) : 0) + m.sum.length, now);
    }
    this.note(r, a, now - r.begun);
    r.end(a);
    this.rest();
  }

  /**
   * Is the end of a call whose handler does not stop. The handler keeps its place. Its key is free for another run only
   * where two at once do no harm.
   */
  abandon(r: Run): void {
    if (!this.live.has(r) || r.leaked) return;
    const a = r.stoppedAs("unknown");
    this.note(r, a, 0);
    r.leaked = true;
    this.leaked++;
    if (twice(r.tool.manifest)) {
      for (const m of r.memos) {
        m.run = undefined;
        this.memory.keep(m, 0, performance.now());
      }
      r.memos = [];
    }
    r.end(a);
    r.log().error("handler leaked: it goes on although its call is over", { why: a.fault!.message });
    this.rest();
  }

  /** Counts an ended call. What a leaked handler comes to was counted when it leaked. */
  private note(r: Run, a: Answer, took: number): void {
    const s = r.served;
    s.busy += took;
    if (!a.fault || r.leaked) return;
    s.errors++;
    s.lastError = truncate(`${a.fault.kind}: ${a.fault.message}`, 200);
    if (a.fault.kind === "internal" || a.fault.kind === "upstream")
      r.log().warn("tool failed", { why: s.lastError, error: a.fault.cause });
  }

  /** Ends an attempt. Without a tool the fault names none. */
  answer(tool: Tool | undefined, c: Caller, a: Answer): void {
    this.post(
      a.fault ? this.faultLetter(tool, c, a.frame, a.fault) : { reply: c.reply, headers: a.headers, data: a.data },
    );
  }

  private faultLetter(tool: Tool | undefined, c: Caller, frame: string, fault: Fault): Letter {
    const record = { ...fault.toRecord(), worker: this.id, attempt: c.attempt };
    record.tool ||= tool?.name ?? "";
    const { headers, body } = encodeFault(record);
    return { reply: c.reply, headers: { ...headers, [H.frame]: frame, [H.worker]: this.id }, data: body };
  }

  private post(l: Letter): void {
    if (this.send(l.reply, l.headers, l.data)?.kind === "unavailable") this.unsent.put(l);
  }

  /** Publishes a frame. */
  send(reply: string, headers: Record<string, string>, data: Uint8Array | string): Fault | undefined {
    const f = this.bus.publish(reply, headers, data);
    if (f) this.log.warn("frame not sent", { reply, frame: headers[H.frame] ?? "", error: f.message });
    return f;
  }
}

const headIn = (m: Msg): Head => plainHead(headerBlock(m)) ?? headOf(fromNats(m.headers));

/** An alternative tool for the same call is another thing to do. */
function memoKey(tool: string, name: string): string {
  const key = `${tool} ${name}`;
  / /.test(key); // makes one piece of it: V8 would keep, and move, the tree of what it was put together from
  return key;
}

function refOf(text: string): CallRef | undefined {
  try {
    return parseCallRef(text);
  } catch {
    return undefined;
  }
}

/** Gives subscriptions back, all at once, and waits until what had come was handled. */
async function drain(subs: Subscription[], ms: number): Promise<void> {
  const late = sleep(ms);
  await Promise.race([Promise.allSettled(subs.map((s) => s.drain())), late.over]);
  late.cancel();
}

function sleep(ms: number): { over: Promise<void>; cancel: () => void } {
  let timer: NodeJS.Timeout;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return { over, cancel: () => clearTimeout(timer) };
}
