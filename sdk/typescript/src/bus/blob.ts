// Claim checks: what does not fit a message is stored in pieces in a stream, and fetched by who needs it. The three
// requests that this takes are made by hand: a JetStream client would ask for more than a worker's user may do.

import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { NoRespondersError, RequestError, TimeoutError } from "@nats-io/nats-core";
import { nuid } from "@nats-io/transport-node";
import {
  Fault,
  Internal,
  InvalidArguments,
  NotFound,
  Overloaded,
  Timeout,
  Unavailable,
  Upstream,
} from "../fault/fault.ts";
import type { BlobRef } from "../wire/blobref.ts";
import { maxBlob, maxChunks } from "../wire/limits.ts";
import type { Bus } from "./connect.ts";

const inFlight = 8;
const pieceTimeout = 5000;
const patience = 1000; // how long what was just put may be unknown to the replica that we ask
const api = "$JS.API.";

/** Stores data under a claim check for ttl seconds. It throws a Fault, which does not say what ran. */
export async function putBlob(bus: Bus, data: Uint8Array, ttl: number): Promise<BlobRef> {
  const piece = bus.inline;
  const chunks = Math.max(1, Math.ceil(data.length / piece));
  if (data.length > maxBlob || chunks > maxChunks) {
    throw new InvalidArguments(
      `payload of ${data.length} bytes is larger than a claim check may hold (${maxBlob} bytes, ${maxChunks} pieces); send less, or a reference to it`,
    );
  }
  const ref: BlobRef = {
    id: nuid.next(),
    size: data.length,
    chunks,
    sha256: createHash("sha256").update(data).digest("hex"),
  };
  const put = (i: number) =>
    putPiece(bus, bus.subjects.blob(ref.id, i), data.subarray(i * piece, (i + 1) * piece), ttl);
  try {
    await put(0);
  } catch (err) {
    if (!nobodyThere(err)) throw blobFault(bus, "put", err);
    await createStream(bus); // it is not there yet
    await put(0).catch((err: unknown) => {
      throw blobFault(bus, "put", err);
    });
  }
  await each(chunks - 1, (i) => put(i + 1)).catch((err: unknown) => {
    throw blobFault(bus, "put", err);
  });
  return ref;
}

/** Fetches and verifies what a claim check stands for. It throws a Fault, which does not say what ran. */
export async function getBlob(bus: Bus, ref: BlobRef, signal?: AbortSignal): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let total = 0;
  try {
    await each(ref.chunks, async (i) => {
      signal?.throwIfAborted();
      const piece = await getPiece(bus, bus.subjects.blob(ref.id, i), signal);
      pieces[i] = piece;
      total += piece.length;
      if (total > ref.size) throw new Internal(`claim check: more than the ${ref.size} bytes that it says`);
    });
  } catch (err) {
    signal?.throwIfAborted();
    throw blobFault(bus, "get", err);
  }
  const data = Buffer.concat(pieces);
  if (data.length !== ref.size || createHash("sha256").update(data).digest("hex") !== ref.sha256) {
    throw new Internal(
      `claim check: what is stored is not what was put: ${data.length} bytes, expected ${ref.size} with the digest ${ref.sha256}`,
      { execution: "unknown" },
    );
  }
  return data;
}

/** Does n things, some at once, until one fails. */
async function each(n: number, f: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  let failed = false;
  const one = async () => {
    while (next < n && !failed) {
      await f(next++).catch((err: unknown) => {
        failed = true;
        throw err;
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(n, inFlight) }, one));
}

async function putPiece(bus: Bus, subject: string, data: Uint8Array, ttl: number): Promise<void> {
  const answer = await natsRequest(bus, subject, data, {
    "Nats-Expected-Last-Subject-Sequence": "0",
    "Nats-TTL": `${ttl}s`,
  });
  const ack = answer.json<{ error?: { code: number; description: string }; stream?: string }>();
  if (ack.error) throw new StoreError(ack.error.code, ack.error.description);
}

/** Makes a request with headers that only we may send: the allow-list is for what comes from outside. */
const natsRequest = (bus: Bus, subject: string, data: Uint8Array | string, headers: Record<string, string> = {}) =>
  bus.request(subject, data, pieceTimeout, headers);

class StoreError extends Error {
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

async function getPiece(bus: Bus, subject: string, signal?: AbortSignal): Promise<Uint8Array> {
  const end = Date.now() + patience;
  for (let wait = 5; ; wait = Math.min(2 * wait, 100)) {
    try {
      const m = await natsRequest(bus, `${api}DIRECT.GET.${bus.subjects.blobStream()}.${subject}`, "");
      const status = m.headers?.code ?? 0;
      if (status === 404)
        throw new NotFound("claim check: a piece is not there; it ran out, or was never stored whole");
      if (status !== 0) throw new Upstream(`claim check: direct get: status ${status} ${m.headers?.description ?? ""}`);
      if (m.headers?.get("Nats-Subject") !== subject)
        throw new Internal("claim check: the answer is about another piece");
      return m.data;
    } catch (err) {
      const again = err instanceof NotFound || nobodyThere(err);
      if (!again || Date.now() > end) throw err;
    }
    await sleep(wait, undefined, signal ? { signal } : undefined);
  }
}

async function createStream(bus: Bus): Promise<void> {
  const name = bus.subjects.blobStream();
  const config = {
    name,
    description: "toolbus: payloads that are too large for a message",
    subjects: [bus.subjects.blobs()],
    retention: "limits",
    storage: "file",
    num_replicas: bus.nc.info?.cluster ? 3 : 1,
    discard: "new",
    max_bytes: 1 << 30,
    max_age: 24 * 60 * 60 * 1_000_000_000,
    allow_direct: true,
    allow_msg_ttl: true,
  };
  try {
    const m = await natsRequest(bus, `${api}STREAM.CREATE.${name}`, JSON.stringify(config));
    const { error } = m.json<{ error?: { code: number; err_code: number; description: string } }>();
    if (error && error.err_code !== 10058) throw new StoreError(error.code, error.description); // 10058: it stands, by another's hand
  } catch (err) {
    throw blobFault(bus, "put", err);
  }
}

function nobodyThere(err: unknown): boolean {
  return err instanceof NoRespondersError || (err instanceof RequestError && err.isNoResponders());
}

/** Says what a claim check has to do with err. */
function blobFault(bus: Bus, verb: string, err: unknown): Fault {
  if (err instanceof Fault) return err.with({ execution: "unknown" });
  const execution = "unknown";
  const stream = bus.subjects.blobStream();
  if (nobodyThere(err)) {
    return new Unavailable(
      `payloads above ${bus.inline} bytes need JetStream with the stream ${stream}, and nothing answers for it; enable JetStream, or send less`,
      { execution, cause: err },
    );
  }
  const message = err instanceof Error ? err.message : String(err);
  if (err instanceof StoreError && /maximum bytes|resources|storage/i.test(message)) {
    return new Overloaded(`claim checks are full; try later, or raise max_bytes of the stream ${stream}`, {
      execution,
      cause: err,
    });
  }
  if (err instanceof TimeoutError)
    return new Timeout(`claim check (${verb}): nothing came within ${pieceTimeout} ms`, { execution, cause: err });
  return new Upstream(`claim check (${verb}): ${message}`, { execution, cause: err });
}
