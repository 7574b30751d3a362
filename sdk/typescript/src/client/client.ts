import type { Msg } from "@nats-io/nats-core";
import { nuid } from "@nats-io/transport-node";
import { getBlob, putBlob } from "../bus/blob.ts";
import type { Bus } from "../bus/connect.ts";
import {
  Denied,
  Fault,
  Internal,
  InvalidArguments,
  NotFound,
  Timeout,
  Unavailable,
  WorkerLost,
} from "../fault/fault.ts";
import { formatBlobRef, parseBlobRef } from "../wire/blobref.ts";
import type { Codec } from "../wire/codec.ts";
import { cutFault } from "../wire/faultrecord.ts";
import { fromNats, get, H, msgpack } from "../wire/headers.ts";
import { idProblem, reserved } from "../wire/names.ts";
import {
  type Call,
  type Event,
  eventCodec,
  type LateRecord,
  lateQueryCodec,
  lateRecordCodec,
  type Outcome,
  pageCodec,
  type TurnRequest,
  traceQueryCodec,
  turnControlCodec,
  turnRequestCodec,
} from "../wire/records.ts";
import { Inbox } from "./inbox.ts";
import { plainEvent, plainLate, rawCall } from "./values.ts";

const silence = 5000; // ms that an executor may say nothing: a live one speaks every second
const answerIn = 10_000; // ms that an executor may take for an answer, and for each further part of one
const again = 500; // ms after which a cancel is said again, for it may have overtaken its turn
const patience = 4; // so often to an executor that says nothing
const most = 10; // and so often in all
const maxTraceEvents = 100_000;
const blobTTL = 3600; // seconds

/** Some calls to run under one deadline. What is absent is the default: see docs/protocol.md. */
export type Turn = Partial<Omit<TurnRequest<unknown>, "calls" | "open">> & {
  calls: (Omit<Call<unknown>, "id"> & { id?: string })[];
};

/**
 * Hands turns to executors over the bus, and brings back what happens to them. It decides nothing. What it throws are
 * Faults: Unavailable where no executor is there (nothing ran), WorkerLost where it went silent (what ran is unknown).
 */
export class Client {
  private readonly bus: Bus;

  constructor(bus: Bus) {
    this.bus = bus;
  }

  /** Runs a turn to its end. When signal aborts first the turn is cancelled, and the outcome says so. */
  async run(turn: Turn, signal?: AbortSignal): Promise<Outcome<unknown>> {
    let outcome: Outcome<unknown> | undefined;
    for await (const e of this.stream(turn, signal)) outcome = e.outcome ?? outcome;
    return outcome!;
  }

  /**
   * Runs a turn and gives every event as it comes, TurnEnded with the outcome the last. A loop that is left early cancels
   * the turn.
   */
  async *stream(turn: Turn, signal?: AbortSignal): AsyncGenerator<Event<unknown>, void, undefined> {
    const request = requestOf(turn);
    const line = this.open();
    let ended = false;
    const rouse = () => line.inbox.rouse();
    try {
      const [headers, body] = await this.pack(turnRequestCodec, request);
      signal?.addEventListener("abort", rouse);
      line.send(this.bus.subjects.turnRun(), { ...headers, [H.progress]: line.subject }, body);
      let said = 0; // how often a cancel was said
      let silent = 0;
      for (let quiet = performance.now(); ; ) {
        const cancelled = signal?.aborted ?? false;
        if (cancelled && said === 0) {
          said = silent = 1;
          this.cancel(request.id);
        }
        const m = await line.inbox.next(cancelled ? again : silence);
        if (m) {
          silent = 0;
          quiet = performance.now();
          const e = await this.event(m, request.id);
          if (!e) continue;
          ended = e.type === "TurnEnded";
          yield e;
          if (ended) return;
          quiet = performance.now();
          continue;
        }
        if (said > 0) {
          if (silent === patience || said === most) {
            throw new WorkerLost(`turn ${request.id} was cancelled, and its outcome did not come: what ran is unknown`);
          }
          said++;
          silent++;
          this.cancel(request.id);
        } else if (performance.now() - quiet >= silence - 10) {
          throw new WorkerLost(`the executor of turn ${request.id} has gone silent: what ran is unknown`);
        }
      }
    } finally {
      signal?.removeEventListener("abort", rouse);
      line.close();
      if (!ended && line.sent) this.cancel(request.id);
    }
  }

  /** Tells whoever runs the turn to stop it, or one call of it. It does not wait: the outcome says what came of it. */
  cancel(turn: string, call?: string): void {
    checkIds({ turn, ...(call !== undefined && { call }) });
    const body = call === undefined ? "" : turnControlCodec.pack({ call });
    const headers: Record<string, string> = {
      [H.frame]: "cancel",
      ...(call !== undefined && { [H.contentType]: msgpack }),
    };
    this.bus.publish(this.bus.subjects.turnCtl(turn), headers, body);
  }

  /**
   * Fetches what came of a call that went on after its turn had ended; executors keep it for a day. Without a turn: of
   * whichever turn had such a call last. It throws a Fault: NotFound where there is no such result, or not yet.
   */
  async late(call: string, turn?: string): Promise<LateRecord<unknown>> {
    checkIds({ call, ...(turn !== undefined && { turn }) });
    for await (const data of this.query(this.bus.subjects.turnLate(), lateQueryCodec, {
      call,
      ...(turn && { turn }),
    })) {
      const record = decoded(lateRecordCodec, data);
      if (record.fault) throw Fault.fromRecord(cutFault(record.fault));
      if (record.result?.call !== call || (turn && record.turn !== turn)) {
        throw new Internal(`the executor answered with the late result of another call than ${call}`);
      }
      return plainLate(record);
    }
    throw new NotFound(`there is no late result of ${call}`);
  }

  /** Is the journal of a turn: its events in order, those so far where it still runs. It throws a Fault. */
  async trace(turn: string): Promise<Event<unknown>[]> {
    checkIds({ turn });
    const events: Event<unknown>[] = [];
    for await (const data of this.query(this.bus.subjects.turnTrace(), traceQueryCodec, { turn })) {
      const page = decoded(pageCodec, data);
      if (page.fault) throw Fault.fromRecord(cutFault(page.fault));
      if (page.turn !== turn) throw new Internal(`the executor answered with events of another turn than ${turn}`);
      for (const e of page.events ?? []) events.push(plainEvent(e));
      if (events.length > maxTraceEvents)
        throw new Internal(`the journal of turn ${turn} has more than the ${maxTraceEvents} events that are taken in`);
      if (page.last) break;
    }
    if (events.length === 0) throw new NotFound(`there is no journal of turn ${turn}`);
    return events;
  }

  /** Asks any executor, and gives the parts of its answer until the reader wants no more. */
  private async *query<T extends object>(subject: string, codec: Codec<T>, q: T): AsyncGenerator<Uint8Array> {
    const line = this.open();
    try {
      const [headers, body] = await this.pack(codec, q);
      line.send(subject, headers, body);
      for (;;) {
        const m = await line.inbox.next(answerIn);
        if (!m) throw new Timeout(`no executor has answered on ${subject} for ${answerIn} ms; try again`);
        if (line.inbox.dropped) throw new Internal(`the answer on ${subject} is larger than what is taken in`);
        yield await this.payload(m);
      }
    } finally {
      line.close();
    }
  }

  /** Is a subject of our own to which answers come. */
  private open(): Line {
    return new Line(this.bus);
  }

  /** Is a record ready to send. What does not fit a message is put behind a claim check. */
  private async pack<T extends object>(
    codec: Codec<T>,
    record: T,
  ): Promise<[Record<string, string>, Uint8Array | string]> {
    const headers = { [H.contentType]: msgpack };
    const body = codec.pack(record);
    if (body.length <= this.bus.inline) return [headers, body];
    return [{ ...headers, [H.blob]: formatBlobRef(await putBlob(this.bus, body, blobTTL)) }, ""];
  }

  /** Is what a message from an executor holds, behind a claim check or not. */
  private async payload(m: Msg): Promise<Uint8Array> {
    if (m.headers?.code === 503)
      throw new Unavailable("no executor is running: start one with `executor serve` or `executor dev`");
    const check = get(fromNats(m.headers), H.blob);
    if (!check) return m.data;
    return getBlob(this.bus, parseBlobRef(check), AbortSignal.timeout(10_000));
  }

  /**
   * Takes one event in; none where it only says that the executor is there. What speaks of another turn is not for us:
   * whoever runs a turn chooses where its events go.
   */
  private async event(m: Msg, turn: string): Promise<Event<unknown> | undefined> {
    const record = decoded(eventCodec, await this.payload(m), (e) => e.type !== "Alive"); // that names no turn
    if (record.type === "Alive" || record.turn !== turn) return undefined;
    const e = plainEvent(record);
    if (e.type !== "TurnEnded") return e;
    if (!e.outcome || e.outcome.results.length === 0)
      throw new Internal(`the executor ended turn ${turn} without an outcome`);
    return e;
  }
}

/** A subject of our own to which answers come. */
class Line {
  readonly inbox = new Inbox();
  readonly subject: string;
  sent = false;
  private readonly bus: Bus;
  private readonly close_: () => void;

  constructor(bus: Bus) {
    this.bus = bus;
    this.subject = bus.subjects.reply(reserved, bus.id, nuid.next());
    const refused = (err: Error) => {
      this.failure = new Denied(`this user may not receive replies on ${this.subject}: ${err.message}`, { cause: err });
      this.inbox.rouse();
    };
    const sub = bus.subscribe(
      this.subject,
      "",
      (m) => this.inbox.put(m),
      refused,
      () => {},
    );
    this.close_ = () => sub.unsubscribe();
  }

  failure: Fault | undefined;

  send(subject: string, headers: Record<string, string>, body: Uint8Array | string): void {
    const f = this.failure ?? this.bus.publish(subject, headers, body, this.subject);
    if (f) throw f;
    this.sent = true;
  }

  close(): void {
    this.close_();
  }
}

function requestOf(turn: Turn): TurnRequest {
  try {
    const request: TurnRequest = { ...turn, id: turn.id || nuid.next(), calls: turn.calls.map(rawCall) };
    turnRequestCodec.check(request);
    return request;
  } catch (err) {
    throw new InvalidArguments((err as Error).message, { cause: err });
  }
}

function decoded<T extends object>(codec: Codec<T>, data: Uint8Array, checked: (record: T) => boolean = () => true): T {
  try {
    const record = codec.read(data);
    if (checked(record)) codec.check(record);
    return record;
  } catch (err) {
    throw new Internal(`what the executor sent cannot be read: ${(err as Error).message}`, {
      execution: "unknown",
      cause: err,
    });
  }
}

function checkIds(ids: Record<string, string>): void {
  for (const [field, id] of Object.entries(ids)) {
    const problem = idProblem(id);
    if (problem) throw new InvalidArguments(`${field}: ${problem}`);
  }
}
