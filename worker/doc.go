// Package worker runs tools: it takes calls from the bus, runs each in its handler, and answers every one exactly once.
//
//	call ──► checked ──► remembered? ──► room? ──► handler ──► result
//	            │             │            │          │
//	          error      same answer     nack     error, stopped
//
// A worker listens on tb.v1.call.<tool> in the queue group of all workers of the tool, on tb.v1.to.<id> for what is meant
// for it alone (calls sent to it by choice, cancel, ping, drain, quarantine, describe), on tb.v1.cancel.<tool> for cancels
// from those who do not know where a call runs, and on tb.v1.rollcall. It says once a second on tb.v1.hb.<id> what it is
// and how busy.
//
// What always holds:
//
//   - It answers only to reply subjects that callers may choose: others could be JetStream's own.
//   - A call that it does not run gets a nack at once: full, draining and quarantined workers never let one wait.
//   - A call ends with one frame, and nothing follows that. A handler that panics, ignores its deadline or ignores a
//     cancel does not change that; where it goes on regardless it is counted as leaked and keeps its place until it
//     returns.
//   - A bare NATS request is a call, and its plain result has no headers. Frames that do not end a call (accept,
//     progress, partial) go only to callers that sent Tb-Call.
//   - Calls that carry Tb-Call run once per idempotency key and tool as long as the worker remembers the key. A newer
//     attempt takes over the run of an older one, and a repeat of a finished one gets the same answer. The memory is the
//     process's own: it dies with it, and other workers of the tool do not share it.
//
// SetTools changes what a worker serves while it runs: a bridge's tools come and go with the server behind it.
//
// Shutdown, a Drain frame and the end of Run's context all do the same: say that it drains, give back the subscriptions
// so that calls go elsewhere, run what had already come, and leave when that has ended or the grace is over.
package worker
