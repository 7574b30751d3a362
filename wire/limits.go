package wire

import "time"

// Version is the protocol version: the v1 in every subject and the V of every Event.
const Version = 1

// Sizes and counts (design §4). What is over one of them is refused with a clear word, never cut silently. Only faults
// are cut, because a fault must arrive: see CheckFault.
const (
	// MaxInlineSlack is what stays free below the server's max_payload for headers and protocol, in bytes. Arguments
	// and results that need more go as a claim check.
	MaxInlineSlack = 64 << 10

	MaxBlob     = 64 << 20 // bytes behind one claim check
	MaxChunks   = 4096     // pieces of one claim check
	MaxDepth    = 64       // how deep JSON may nest
	MaxCalls    = 1000     // in one turn
	MaxEvents   = 10_000   // in one page of a journal
	MaxTools    = 1000     // of one worker
	MaxMetadata = 16 << 10 // bytes of all headers of one message
	MaxValue    = 8 << 10  // bytes of one header value
	MaxSubject  = 512      // bytes of a subject to which we answer
	MaxAttempt  = 1_000_000

	// MaxPlanDepth is how many calls may stand in a chain in which each waits for the one before.
	MaxPlanDepth = 100

	// MaxMs bounds every duration in a request, in milliseconds: 24 days. It fits 32 bits, which is what every language
	// sends as an integer.
	MaxMs = 1<<31 - 1

	maxKey  = 512 // bytes of an idempotency key or a breaker's
	maxTime = 64  // bytes of a timestamp
)

// How long things take by default (design §4, §8).
const (
	HeartbeatEvery = time.Second            // between two beats of a worker
	AcceptAfter    = 25 * time.Millisecond  // a call that ends sooner sends no accept frame
	ProbeAfter     = 100 * time.Millisecond // nothing heard of an attempt: ask its worker
	PingEvery      = 250 * time.Millisecond // to each worker that holds a call
	PingsMissed    = 3                      // that many in a row: the worker hangs, its attempts are lost
	CancelGrace    = 250 * time.Millisecond // how long a stopped frame is waited for
)
