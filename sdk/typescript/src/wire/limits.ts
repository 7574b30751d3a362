// Sizes, counts and times of wire version 1 (docs/protocol.md). What is over one of them is refused with a clear word,
// never cut silently; only faults are cut, because a fault must arrive.

/** The version of the protocol: the v1 in every subject. */
export const version = 1;

/** Bytes that stay free below the server's max_payload, for headers and protocol. */
export const maxInlineSlack = 64 << 10;
/** Bytes behind one claim check. */
export const maxBlob = 64 << 20;
/** Pieces of one claim check. */
export const maxChunks = 4096;
/** How deep JSON may nest. */
export const maxDepth = 64;
/** Calls in one turn. */
export const maxCalls = 1000;
/** Events in one page of a journal. */
export const maxEvents = 10_000;
/** Tools of one worker. */
export const maxTools = 1000;
/** Bytes of all headers of one message. */
export const maxMetadata = 16 << 10;
/** Bytes of one header value. */
export const maxValue = 8 << 10;
/** Bytes of a subject to which we answer. */
export const maxSubject = 512;
/** Attempts of a call. */
export const maxAttempt = 1_000_000;
/** Every duration, in milliseconds. */
export const maxMs = 2 ** 31 - 1;
/** The largest integer that every language reads exactly. */
export const maxInt = 2 ** 53;
/** Bytes of an idempotency key or a breaker's, in a turn request. */
export const maxKey = 512;

/** Milliseconds between two beats of a worker. */
export const heartbeatEvery = 1000;
/** A call that ends sooner, in milliseconds, sends no accept frame. */
export const acceptAfter = 25;
/** Milliseconds that a stopped frame is waited for. */
export const cancelGrace = 250;
